package tcp

import "github.com/rnicd/rnicd/internal/flight"

// acked is what one segment's ACK and SACK fields said.
type acked struct {
	octets    int    // cumulatively acknowledged now
	sacked    int    // newly SACKed now
	delivered int    // newly known to have arrived, either way
	flight    int    // before the segment
	limited   bool   // cwnd held us back before the segment
	again     int32  // segments acknowledged now that were in flight again
	duplicate bool   // duplicate ACK in the sense of RFC 5681 section 2
	bare      bool   // it has no SACK option
	window    bool   // the peer's window changed
	rtt       int64  // sample, -1 none
	dsack     bool   // the peer reports a duplicate,
	dsackEnd  uint64 // which ends here
	sackedTo  uint64 // highest SACKed octet before the segment
	rackAt    int64  // of what it delivers, the most recently sent: when it was sent,
	rackEnd   uint64 // and where it ends; 0: nothing
	sackedAt  int64  // when the most recent of the first transmissions it SACKs was sent, 0 none
	frtoOld   bool   // it delivers what was outstanding at the timeout and was not sent again
	frtoNew   bool   // it delivers what was first sent after the timeout
	ece       bool
	hasEcho   bool
	echoTS    uint32 // once hasEcho
}

// inputAck is the fifth step of RFC 9293 section 3.10.7.4.
func (c *Conn) inputAck(now int64, s *Segment) Drop {
	if s.Flags&ACK == 0 {
		return DropNoACK
	}
	if c.state == SynReceived {
		return c.inputAckOfSYN(now, s)
	}
	delta := s.Ack.Sub(c.seqOf(c.sndUna))
	switch {
	case delta > int(c.sndMax()-c.sndUna):
		c.answerUnacceptable(now, s, 0) // never sent
		return DropAckUnsent
	case delta < -int(c.sndWndMax):
		c.challenge(now) // too old to be true: RFC 5961 section 5.2
		return DropAckUnsent
	}
	if delta == 0 && c.sndUna == c.sndMax() && s.Options.SACKCount == 0 && !c.tlpActive {
		c.updateWindow(now, s, false) // nothing is outstanding: we only receive
		return DropNone
	}

	c.before(now)
	a := acked{flight: c.flight(), rtt: -1}
	a.limited = c.sndUna < c.recovery.limitedTo
	a.sackedTo = c.recovery.sackedTo
	a.bare = s.Options.SACKCount == 0
	a.ece = c.ecn.on && s.Flags&ECE != 0
	if c.useTS {
		a.hasEcho, a.echoTS = s.Options.HasTimestamps, s.Options.TSecr
	}
	if delta > 0 {
		c.advance(now, s, c.sndUna+uint64(delta), &a)
	}
	if delta >= 0 {
		a.window = c.updateWindow(now, s, delta > 0)
	}
	if c.useSACK && s.Options.SACKCount > 0 {
		c.applySACK(now, s, &a)
	}
	if c.useSACK {
		a.duplicate = a.sacked > 0 && delta == 0
	} else {
		a.duplicate = delta == 0 && s.SeqLen() == 0 && !a.window && a.flight > 0
	}
	if a.duplicate {
		c.stats.dupAcksIn.one()
	}
	sampled := a.octets
	if a.sackedAt > 0 {
		c.rtt.lowest.add(now, now-a.sackedAt)
		if a.rtt < 0 && !c.useTS { // else no sample in a recovery, and a timer that stays doubled
			a.rtt, sampled = now-a.sackedAt, a.sacked
		}
	}
	if a.rtt >= 0 {
		c.rtt.sample(a.rtt, a.flight/max(sampled, 1))
	}
	c.repair(now, &a)
	switch {
	case delta > 0:
		c.armRetransmit(now)
		c.ackedFIN(now)
	case a.sacked > 0 || a.dsack || c.timers.kind == timerReorder || c.recovery.rack.reoAt != never:
		c.armLoss(now)
	}
	return DropNone
}

// inputAckOfSYN is inputAck in SYN-RECEIVED.
func (c *Conn) inputAckOfSYN(now int64, s *Segment) Drop {
	if s.Ack != c.iss+1 {
		c.oweReset(s)
		return DropAckUnsent
	}
	c.sndWnd = int32(s.Window) << c.sndShift
	c.sndWndMax = c.sndWnd
	c.sndWl1 = s.Seq
	c.establish(now, s)
	return DropNone
}

// advance moves SND.UNA to una and gives what is acknowledged to Release.
func (c *Conn) advance(now int64, s *Segment, una uint64, a *acked) {
	a.octets = int(una - c.sndUna)
	oldest, resent := c.sent.una, c.sent.resent
	sampleAt, resentAt := int64(-1), int64(-1)
	for c.sent.una != c.sent.nxt {
		r := c.sent.rec(c.sent.una)
		if r.endAt() > una {
			break
		}
		if r.flags&recSacked == 0 {
			original := r.flags&recEver == 0 || c.sent.una == oldest && c.echoesBefore(s, r.sentAt)
			c.delivered(now, c.sent.una, original, a)
			switch {
			case r.flags&recEver == 0:
				sampleAt = r.sentAt
			case c.sent.una == oldest && !original:
				resentAt = r.sentAt
			default:
				resentAt = max(resentAt, 0)
			}
		}
		c.sent.popAcked()
	}
	a.again = int32(resent - c.sent.resent)
	if c.sent.una != c.sent.nxt {
		if r := c.sent.rec(c.sent.una); una > r.at {
			c.trimFront(now, r, int(una-r.at), a)
		}
	}
	// a zero-window probe's octet was taken: the record it came from was never sent
	if una > c.sndNxt {
		c.sndNxt, c.probed = una, false
		r := c.sent.rec(c.sent.nxt)
		c.sent.trim(r, int(una-r.at))
		if r.seqLen() == 0 {
			c.sent.una++
			c.sent.nxt++
		}
	}
	if rv := &c.recovery; rv.phase != phaseOpen &&
		(c.sent.una != oldest || una-rv.repairedTo >= uint64(c.EMSS())) {
		rv.repairedTo, rv.repairedAt = una, now
	}
	c.sndUna = una
	c.owed.Advance(c.AckedOffset(), c.pushed, now)
	c.events |= EvAcked
	c.timers.progressAt, c.timers.outlasted = now, false
	c.timers.probes, c.timers.expiries, c.timers.heldBack, c.timers.stalls = 0, 0, 0, 0
	if c.sent.lost == 0 {
		c.due &^= dueRepair
	}
	switch {
	case resentAt < 0 && sampleAt >= 0:
		a.rtt = now - sampleAt
		c.rtt.lowest.add(now, a.rtt)
	case c.useTS && s.Options.HasTimestamps:
		// timestamps resolve Karn's ambiguity: RFC 7323 section 4.1
		if e, ok := c.tsElapsed(now, s.Options.TSecr); ok {
			a.rtt = e
			if resentAt > 0 && now-resentAt >= c.rtt.minRTT() {
				// the echo is of the last transmission, whose time is known better than to the tick
				a.rtt = now - resentAt
			}
		}
	}
}

// echoesBefore says that the timestamp echoed is older than sentAt: what the peer acknowledges is
// an earlier transmission (RFC 3522 section 3.2). That can be told of the oldest record only: its
// timestamp is the peer's TS.Recent.
func (c *Conn) echoesBefore(s *Segment, sentAt int64) bool {
	return c.useTS && s.Options.HasTimestamps && int32(s.Options.TSecr-c.tsNow(sentAt)) < 0
}

// trimFront handles an ACK of part of a segment, which the network has cut, or the peer's window.
// Without SACK the rest of one that was sent again is lost, at most once a round trip: "retransmit
// the first unacknowledged segment" (RFC 6582 section 3.2, partial acknowledgments).
func (c *Conn) trimFront(now int64, r *record, n int, a *acked) {
	a.delivered += n
	c.sent.trim(r, n)
	switch {
	case r.flags&recPrefix != 0: // what was sent again has arrived; the rest has not been sent again
		r.flags &^= recPrefix
		c.lose(c.sent.una)
	case !c.useSACK && r.flags&recResent != 0 && now-r.sentAt >= c.rtt.minRTT():
		c.lose(c.sent.una)
	}
}

// updateWindow takes SND.WND (RFC 9293 section 3.10.7.4) and says whether it changed. SND.WL2 need
// not be kept: the caller gives no segment that acknowledges less than SND.UNA.
func (c *Conn) updateWindow(now int64, s *Segment, advanced bool) bool {
	wl := s.Seq.Sub(c.sndWl1)
	if !advanced && wl < 0 {
		return false
	}
	old := c.sndWnd
	c.sndWnd = int32(s.Window) << c.sndShift
	c.sndWl1 = s.Seq
	c.sndWndMax = max(c.sndWndMax, c.sndWnd)
	if (int(c.sndWnd) < c.flight() || c.sndWnd == 0) && !c.orphaned {
		// The peer is alive and holds us back: no reason to give up (RFC 9293 sections 3.8.6,
		// SHLD-17, and 3.8.6.1, MUST-37). An orphan has no application left that could give up, so
		// R2 ends it (RFC 6429 section 3).
		c.timers.progressAt, c.timers.outlasted = now, false
	}
	if c.sndWnd == old {
		return false
	}
	if c.sndWnd > old {
		c.events |= EvRoom
	}
	if c.sndWnd == 0 {
		c.Record(flight.WindowShut, c.sndUna, 0)
	}
	if old == 0 {
		c.Record(flight.WindowOpen, uint64(c.sndWnd), 0)
		c.windowOpened(now)
	} else if c.sndUna == c.sndNxt {
		c.armRetransmit(now)
	}
	return true
}

// ackedFIN moves the state when our FIN has been acknowledged.
func (c *Conn) ackedFIN(now int64) {
	if !c.finQueued || c.sndUna <= c.pushed {
		return
	}
	switch c.state {
	case FinWait1:
		c.enterFinWait2(now)
	case Closing:
		c.enterTimeWait(now)
	case LastAck:
		c.finish(0)
	}
}
