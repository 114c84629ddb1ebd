package tcp

import "github.com/rnicd/rnicd/internal/flight"

// Input runs RFC 9293 section 3.10.7 on a segment with a good checksum, in the RFC's order. What
// concerns our own octets (acknowledgments, windows, resets) has happened when it returns; what
// concerns the peer's happens in Commit, which the caller calls afterwards, always, with the same
// Arrival and before the next Input.
func (c *Conn) Input(now int64, s *Segment) Arrival {
	c.flow.segsIn += uint64(s.parts())
	c.flow.bytesIn += uint64(s.Len)
	c.heard(now)
	switch c.state {
	case Closed:
		return Arrival{Drop: DropState}
	case SynSent:
		return c.inputSynSent(now, s)
	case SynReceived:
		if done, drop := c.inputSynAgain(now, s); done {
			return Arrival{Drop: drop}
		}
	}
	at, drop := c.acceptable(now, s)
	if drop != DropNone {
		return Arrival{Drop: drop}
	}

	// Second, the RST bit (RFC 5961 section 3.2 tightens it). Third, security: there is none.
	if s.Flags&RST != 0 {
		if at != 0 {
			c.challenge(now)
			return Arrival{Drop: DropRSTChallenge}
		}
		c.inputReset()
		return Arrival{}
	}
	// Fourth, the SYN bit: acceptable saw to the synchronized states.
	if s.Flags&SYN != 0 {
		return c.inputSynInWindow(now)
	}
	// Fifth, the ACK field.
	if drop := c.inputAck(now, s); drop != DropNone {
		return Arrival{Drop: drop}
	}
	// RFC 7323 section 4.3 (2), once the ACK has been found acceptable: a sender that can guess the
	// window alone must not move TS.Recent, or PAWS would drop what the peer sends from then on.
	// Linux does it at the same place (tcp_ack).
	if c.useTS && s.Options.HasTimestamps && s.Seq.LessEq(c.lastAck) {
		c.takeTimestamp(now, s.Options.TSval)
	}
	// Sixth, the URG bit: urgent octets stay in line. There is no urgent interface, but a count.
	if s.Flags&URG != 0 {
		c.stats.urgent.one()
	}
	// Seventh, the text, and eighth, the FIN: found here, taken in Commit.
	if s.Len == 0 && s.Flags&FIN == 0 || !c.state.receives() {
		return Arrival{}
	}
	if c.orphaned && at+s.Len > 0 && s.Len > 0 {
		return c.unread(now)
	}
	if c.ecn.on && s.Len > 0 {
		c.markArrived(s)
	}
	return c.arrival(s, at)
}

// inputSynSent is section 3.10.7.3.
func (c *Conn) inputSynSent(now int64, s *Segment) Arrival {
	acked := s.Flags&ACK != 0
	if acked && s.Ack != c.iss+1 { // First: unacceptable unless ISS < SEG.ACK =< SND.NXT
		if s.Flags&RST == 0 {
			c.resetOldPeer(now, s)
		}
		return Arrival{Drop: DropAckUnsent}
	}
	if s.Flags&RST != 0 { // Second
		if !acked {
			return Arrival{Drop: DropState}
		}
		c.finish(EvRefused)
		return Arrival{}
	}
	if s.Flags&SYN == 0 { // Fifth
		return Arrival{Drop: DropState}
	}
	c.takeSYN(now, s) // Fourth
	if !acked {
		c.enter(SynReceived) // simultaneous open: the same ISS again, with an ACK
		c.due |= dueSYN
		return Arrival{}
	}
	c.establish(now, s)
	c.ack.urgent = true
	return Arrival{}
}

// inputSynAgain handles what SYN-RECEIVED may see of the peer's SYN, whose sequence number lies
// left of the window. It takes the SYN off s where an ACK rides on it.
func (c *Conn) inputSynAgain(now int64, s *Segment) (done bool, drop Drop) {
	if s.Flags&(SYN|RST) != SYN || s.Seq != c.irs {
		return false, DropNone
	}
	if s.Flags&ACK == 0 {
		c.ecn.askedAgain(s)
		if c.useTS && s.Options.HasTimestamps {
			c.takeTimestamp(now, s.Options.TSval) // as Half.stampAgain
		}
		c.due |= dueSYN // the peer sends its SYN again: our SYN,ACK was lost
		return true, DropDuplicate
	}
	// Simultaneous open: its SYN,ACK. The SYN is known, the rest is an ACK (RFC 9293 figure 8).
	s.Flags &^= SYN | FIN
	s.Seq++
	s.Len = 0
	s.Window >>= c.sndShift // as an ACK would say it: a SYN's is never scaled (RFC 7323 section 2.2)
	return false, DropNone
}

// acceptable is the first step of section 3.10.7.4, after PAWS (RFC 7323 section 5.3). at is the
// distance of SEG.SEQ from RCV.NXT.
func (c *Conn) acceptable(now int64, s *Segment) (at int, drop Drop) {
	at = s.Seq.Sub(c.rcvNxt())
	wnd := int(c.rcvAdv) - int(c.rcvNxtOff())
	wnd = max(wnd, 0)
	if s.Flags&RST != 0 { // no PAWS (RFC 7323 section 5.2), and no answer
		if at < 0 || at > 0 && at >= wnd {
			return at, DropWindow
		}
		return at, DropNone
	}
	if s.Flags&SYN != 0 && c.state.synchronized() {
		c.challenge(now) // wherever it lies: RFC 5961 section 4.2
		return at, DropSYNChallenge
	}
	if c.useTS {
		if !s.Options.HasTimestamps && c.mem.cfg.StrictTimestamps {
			return at, DropNoTimestamps // silently: RFC 7323 section 3.2
		}
		if s.Options.HasTimestamps && c.paws.old(now, s.Options.TSval) {
			c.answerUnacceptable(now, s, at)
			return at, DropPAWS
		}
	}
	n := s.SeqLen()
	switch {
	case n == 0 && at <= wnd && at >= c.lastAck.Sub(c.rcvNxt()):
		// At the right edge too, beyond the letter of section 3.4: there stands every ACK of a peer
		// that has filled our window. And left of RCV.NXT, down to what the peer has been told of
		// (Linux: tcp_sequence): there stands the ACK of one that has probed our window with an
		// octet, and cannot know that we took it.
		return at, DropNone
	case n > 0 && wnd > 0 && at < wnd && at+n > 0:
		return at, DropNone
	case n > 0 && wnd == 0 && at == 0:
		// Zero-window probe: its ACK field counts (section 3.10.7.4), its octets do not.
		c.ack.urgent = true
		return at, DropNone
	}
	c.answerUnacceptable(now, s, at)
	if at+n > 0 {
		return at, DropWindow
	}
	c.stats.dupSegs.one()
	c.inputOldAck(now, s, at)
	return at, DropDuplicate
}

// inputOldAck takes the ACK of a segment whose octets are all known, which section 3.10.7.4 would
// drop with them: of two ends that repeat at the same time each would wait for the other's timer,
// where nothing else comes to acknowledge what it has sent. BSD has always taken it. Not from
// further left than a window reaches to the right, so that nobody guesses a sequence number more
// easily than before (RFC 5961 section 5).
func (c *Conn) inputOldAck(now int64, s *Segment, at int) {
	if s.Flags&ACK != 0 && c.state.synchronized() && at >= -c.mem.cfg.ReceiveWindow {
		c.inputAck(now, s)
	}
}

// answerUnacceptable owes the ACK that section 3.10.7.4 demands: at once for what carries octets,
// since the peer may have lost our ACK of them; within a limit for empty segments.
func (c *Conn) answerUnacceptable(now int64, s *Segment, at int) {
	if s.Flags&FIN != 0 && c.state == TimeWait {
		c.timers.laterAt = now + c.mem.cfg.TimeWaitNs // the peer's FIN again
	}
	if s.SeqLen() == 0 {
		if c.limiter.allow(now, &c.mem.cfg) {
			c.ack.urgent = true
		}
		return
	}
	c.ack.urgent = true
	if s.Len > 0 && at+s.Len <= 0 {
		c.duplicate(s)
	}
}

// inputReset handles an acceptable RST.
func (c *Conn) inputReset() {
	c.Record(flight.PeerReset, c.rcvNxtOff(), 0)
	switch {
	case c.state == SynReceived && c.passive:
		c.finish(0) // back to LISTEN, and the user is not told
	case c.state == SynReceived:
		c.finish(EvRefused)
	case c.state == TimeWait, (c.state == Closing || c.state == LastAck) && c.sndUna >= c.pushed:
		// Both ends have closed, and what they sent has arrived: "enter the CLOSED state, delete the
		// TCB, and return". Where octets of ours are not acknowledged, the user is to know.
		c.finish(0)
	default:
		c.finish(EvReset)
	}
}

// inputSynInWindow handles a new SYN in SYN-RECEIVED (section 3.10.7.4, fourth).
func (c *Conn) inputSynInWindow(now int64) Arrival {
	if c.passive {
		c.finish(0)
		return Arrival{Drop: DropState}
	}
	c.challenge(now)
	return Arrival{Drop: DropSYNChallenge}
}

// refusal is the RST of dueReset: its sequence number, and what timestamps echo, if it has some.
type refusal struct {
	seq     Seq
	echo    uint32
	stamped bool
}

// oweReset owes a RST that answers an unacceptable ACK before the connection is synchronized; the
// state stays.
func (c *Conn) oweReset(s *Segment) {
	c.due |= dueReset
	c.refusal = refusal{seq: s.Ack, stamped: s.Options.HasTimestamps, echo: s.Options.TSval}
}

// arrival finds what of the segment's text is new: clipped to the window and to the peer's FIN,
// without what is held.
func (c *Conn) arrival(s *Segment, at int) Arrival {
	if int(c.rcvAdv) <= int(c.edge) {
		return Arrival{Drop: DropWindow}
	}
	from := int64(c.edge) + int64(at) // may be left of offset 0
	end := from + int64(s.Len)
	a := Arrival{}
	if s.Flags&FIN != 0 {
		c.ack.urgent = true
		// A FIN in front of octets that were taken is a lie: they, too, were in the stream.
		if uint64(end) < c.rcvAdv && !c.hasFin && end >= int64(c.held.end(c.edge)) {
			a.hasFin, a.finAt = true, uint64(end)
		}
	}
	right := int64(c.rcvAdv)
	if c.hasFin {
		right = min(right, int64(c.finAt))
	}
	lo, hi := max(from, int64(c.edge)), min(end, right)
	if lo >= hi {
		if s.Len > 0 {
			a.Drop = c.duplicateText(s)
		}
		a.Fin = a.hasFin
		a.Offset = uint64(max(lo, 0))
		a.InOrder = a.Offset == c.edge
		return a
	}
	left, gapEnd := c.held.gap(uint64(lo), uint64(hi))
	if left == gapEnd {
		a.Drop = c.duplicateText(s)
		return a
	}
	if left != c.edge && !c.held.fits(left, gapEnd) {
		if drop := c.provideSpan(); drop != DropNone {
			c.ack.urgent = true
			return Arrival{Drop: drop}
		}
	}
	a.Offset = left
	a.Skip = int(int64(left) - from)
	a.Len = int(gapEnd - left)
	a.InOrder = left == c.edge
	a.Fin = a.hasFin && gapEnd == a.finAt
	if s.size() >= c.fullLen() {
		a.full = 1
	}
	c.measureMSS(s)
	return a
}

// duplicateText answers a segment all of whose octets are held: an ACK at once, saying so (RFC 2883
// section 4).
func (c *Conn) duplicateText(s *Segment) Drop {
	c.stats.dupSegs.one()
	c.ack.urgent = true
	c.duplicate(s)
	return DropDuplicate
}
