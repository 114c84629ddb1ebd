package tcp

import "github.com/rnicd/rnicd/internal/flight"

// timers of a connection. Each is a time, or never; nothing is ever cancelled elsewhere. One entry
// in the caller's timer wheel serves them all: Deadline says when to look again.
type timers struct {
	rtxAt    int64 // of the kind that runs: at most one of the four does (RFC 8985 section 8)
	delackAt int64
	// when a segment that pacing held back may go; once our FIN is acknowledged, the end
	laterAt    int64
	progressAt int64 // since when the user timeout counts
	sentAt     int64 // last new data; before there was any, the first SYN

	userTimeoutMs uint32 // of this connection, 0 the Config's

	kind     timerKind // of rtxAt
	probes   uint8     // zero-window probes since the window closed
	expiries uint8     // of the retransmission timer since there was progress
	excused  uint8     // how often the loss probe at rtxAt was put off
	stalls   uint8     // timeouts in a row of a segment above the base of path MTU discovery
	heldBack uint8     // of expiries: of segments that had not left (putoff.go)
	synTries uint16    // first and by timer, saturating
	synSends uint8
	synLate  bool // SynLeft was called
	synAgain synAgain

	outlasted bool // R2 was put off since there was progress (pause.go)
}

type timerKind uint8

const (
	timerRetransmit timerKind = iota // RFC 6298
	timerPersist                     // RFC 9293 section 3.8.6.1
	timerReorder                     // RFC 8985 section 6.2, step 5
	timerLossProbe                   // RFC 8985 section 7.2
)

func (t *timers) stop() {
	t.rtxAt, t.delackAt, t.laterAt = never, never, never
	t.kind = timerRetransmit
}

// Deadline is when Expire is next due (math.MaxInt64: never). It may lie in the past.
func (c *Conn) Deadline() int64 {
	t := &c.timers
	return min(t.rtxAt, t.delackAt, t.laterAt, c.giveUpAt(), c.keepAliveAt())
}

// outstanding says that the peer owes us an acknowledgment, or a window.
func (c *Conn) outstanding() bool {
	return c.state.synchronized() && c.sent.una != c.sent.end
}

// Expire handles the timers that are due; follow with Next.
func (c *Conn) Expire(now int64) {
	t := &c.timers
	if now >= t.delackAt {
		t.delackAt = never
		c.ack.urgent = true
	}
	if now >= t.laterAt {
		switch c.state {
		case TimeWait:
			c.finish(0)
			return
		case FinWait2: // an orphan
			c.finish(EvTimeout)
			return
		}
		t.laterAt = never
	}
	if now >= c.giveUpAt() {
		c.Record(flight.GaveUp, uint64(c.flight()), uint64(now-t.progressAt))
		c.finish(EvTimeout) // R2 of RFC 9293 section 3.8.3
		return
	}
	if now >= c.keepAliveAt() {
		c.keepAliveDue(now)
	}
	if now >= t.rtxAt {
		c.retransmissionDue(now)
	}
}

// retransmissionDue handles the timer at rtxAt, whatever its kind.
func (c *Conn) retransmissionDue(now int64) {
	t := &c.timers
	switch {
	case c.state == SynSent && t.synAgain == synAgainDue:
		t.synAgain, t.synTries = synAgainDone, 0 // it counts as the first
		c.due |= dueSYN
		t.rtxAt = never
	case !c.state.synchronized():
		if int(t.synTries) > c.mem.cfg.SynRetries && c.timers.userTimeoutMs == 0 {
			c.finish(EvTimeout)
			return
		}
		c.suspect()
		c.rtt.backOff()
		c.due |= dueSYN
		t.rtxAt = never
	case t.kind == timerPersist:
		c.due |= dueProbe
		if t.probes < 32 {
			t.probes++
		}
		t.rtxAt = now + c.persistInterval()
	case c.sent.una == c.sent.nxt:
		t.rtxAt = never
	case t.kind == timerReorder:
		c.reorderDue(now)
	case t.kind == timerLossProbe:
		c.probeDue(now)
	default:
		t.kind = timerRetransmit
		oldest := c.sent.rec(c.sent.una)
		// RFC 6298 section 5: not sooner than RTO after it was last sent
		if at := oldest.sentAt + c.rto(); at > now {
			c.rtoAt, t.rtxAt = at, at
			return
		}
		if c.sndWnd == 0 {
			// The window closed over what is in flight: this probes, and says nothing about
			// congestion.
			c.rtt.backOff()
			c.due |= dueTailProbe
		} else {
			c.suspect()
			c.timedOut(now)
		}
		c.rtoAt = now + c.rto()
		t.rtxAt = c.rtoAt
	}
}

// armRetransmit restarts the timers: while something is in flight it is the retransmission timer
// (RFC 6298 section 5.3), else the persist timer if a record waits for the peer's window, else
// none.
func (c *Conn) armRetransmit(now int64) {
	t := &c.timers
	t.kind = timerRetransmit
	c.due &^= dueProbe | dueTailProbe | dueLossProbe
	switch {
	case c.sent.una != c.sent.nxt:
		c.rtoAt = now + c.rto()
		c.armLoss(now)
	case c.sent.unsent() && c.sent.rec(c.sent.nxt).seqLen() > int(c.sndWnd):
		t.kind = timerPersist
		t.rtxAt = now + c.persistInterval()
	default:
		t.rtxAt = never
	}
}

// armLoss chooses the timer while something is in flight: what RACK waits for, or the time for a
// probe, and at the latest the retransmission timer, which it does not restart (RFC 8985 sections
// 7.2 and 8).
func (c *Conn) armLoss(now int64) {
	t := &c.timers
	if c.sent.una == c.sent.nxt {
		return
	}
	t.kind, t.rtxAt = timerRetransmit, c.rtoAt
	if !c.useSACK {
		return
	}
	if reoAt := c.recovery.rack.reoAt; reoAt != never {
		if reoAt < c.rtoAt {
			t.kind, t.rtxAt = timerReorder, reoAt
		}
	} else if c.due&dueLossProbe == 0 && c.mayProbe() {
		t.kind, t.rtxAt, t.excused = timerLossProbe, min(now+c.pto(), c.rtoAt), 0
	}
}

// persistInterval is the time to the next zero-window probe: the RTO, doubled each time (RFC 9293
// section 3.8.6.1); or, where the window is open but too small, to the override of silly window
// avoidance (section 3.8.6.2.1).
func (c *Conn) persistInterval() int64 {
	if c.sndWnd > 0 {
		return overrideNs
	}
	return c.rtt.scaled(&c.mem.cfg, c.timers.probes)
}

// windowOpened follows the peer's window up from zero.
func (c *Conn) windowOpened(now int64) {
	c.timers.probes = 0
	c.rtt.backoff = 0
	if c.sent.una != c.sent.nxt { // what was in flight met a closed window, and so did what probed it
		if r := c.sent.rec(c.sent.una); r.flags&recResent != 0 {
			c.lose(c.sent.una)
		}
		c.loseOldest()
	}
	c.armRetransmit(now)
}

func (c *Conn) enterTimeWait(now int64) {
	c.enter(TimeWait)
	c.timers.rtxAt = never
	c.timers.laterAt = now + c.mem.cfg.TimeWaitNs
}
