package tcp

// timers of a connection. Each is a time, or never; nothing is ever cancelled elsewhere. One entry in the caller's timer
// wheel serves them all: Deadline says when to look again.
type timers struct {
	rtxAt      int64 // retransmission (RFC 6298), or persist when persist is set (RFC 9293 section 3.8.6.1)
	delackAt   int64
	timeWaitAt int64
	persist    bool
	probes     uint8 // zero-window probes since the window closed
	expiries   uint8 // of the retransmission timer since there was progress

	progressAt int64 // since when the user timeout counts
	sentAt     int64 // last new data
	synSentAt  int64
	synTries   uint16 // first and by timer, saturating
	synSends   uint16
}

func (t *timers) stop() {
	t.rtxAt, t.delackAt, t.timeWaitAt = never, never, never
	t.persist = false
}

// Deadline is when Expire is next due (math.MaxInt64: never). It may lie in the past.
func (c *Conn) Deadline() int64 {
	t := &c.timers
	return min(t.rtxAt, t.delackAt, t.timeWaitAt, c.giveUpAt(), c.keepAliveAt())
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
	if now >= t.timeWaitAt {
		if c.state == TimeWait {
			c.finish(0)
		} else {
			c.finish(EvTimeout) // an orphan in FIN-WAIT-2
		}
		return
	}
	if now >= c.giveUpAt() {
		c.finish(EvTimeout) // R2 of RFC 9293 section 3.8.3
		return
	}
	if now >= c.keepAliveAt() {
		c.keepAliveDue()
	}
	if now >= t.rtxAt {
		c.retransmissionDue(now)
	}
}

// retransmissionDue is the retransmission or persist timer.
func (c *Conn) retransmissionDue(now int64) {
	t := &c.timers
	switch {
	case !c.state.synchronized():
		if int(t.synTries) > c.cfg.SynRetries && c.userTimeoutNs == 0 {
			c.finish(EvTimeout)
			return
		}
		c.suspect()
		c.rtt.backOff()
		c.due |= dueSYN
		t.rtxAt = never
	case t.persist:
		c.due |= dueProbe
		if t.probes < 32 {
			t.probes++
		}
		t.rtxAt = now + c.persistInterval()
	case c.sent.una == c.sent.nxt:
		t.rtxAt = never
	default:
		oldest := c.sent.rec(c.sent.una)
		if at := oldest.sentAt + c.rtt.current(); at > now { // RFC 6298 section 5: not sooner than RTO after it was last sent
			t.rtxAt = at
			return
		}
		if c.sndWnd == 0 {
			// The window closed over what is in flight: this probes, and says nothing about congestion.
			c.rtt.backOff()
			c.due |= dueTailProbe
		} else {
			c.suspect()
			c.timedOut(now)
		}
		t.rtxAt = now + c.rtt.current()
	}
}

// armRetransmit restarts the timer: while something is in flight it is the retransmission timer (RFC 6298 section 5.3),
// else the persist timer if a record waits for the peer's window, else none.
func (c *Conn) armRetransmit(now int64) {
	t := &c.timers
	t.persist = false
	c.due &^= dueProbe | dueTailProbe
	switch {
	case c.sent.una != c.sent.nxt:
		t.rtxAt = now + c.rtt.current()
	case c.sent.unsent() && c.sent.rec(c.sent.nxt).seqLen() > c.sndWnd:
		t.persist = true
		t.rtxAt = now + c.persistInterval()
	default:
		t.rtxAt = never
	}
}

// persistInterval is the time to the next zero-window probe: the RTO, doubled each time (RFC 9293 section 3.8.6.1); or,
// where the window is open but too small, to the override of silly window avoidance (section 3.8.6.2.1).
func (c *Conn) persistInterval() int64 {
	if c.sndWnd > 0 {
		return overrideNs
	}
	return c.rtt.scaled(c.timers.probes)
}

// windowOpened follows the peer's window up from zero.
func (c *Conn) windowOpened(now int64) {
	c.timers.probes = 0
	c.rtt.backoff = 0
	if c.sent.una != c.sent.nxt { // what was in flight met a closed window, and so did what probed it
		if r := c.sent.rec(c.sent.una); r.flags&recResent != 0 {
			c.sent.unmark(r)
		}
		c.loseOldest()
	}
	c.armRetransmit(now)
}

func (c *Conn) enterTimeWait(now int64) {
	c.state = TimeWait
	c.timers.rtxAt = never
	c.timers.timeWaitAt = now + c.cfg.TimeWaitNs
}
