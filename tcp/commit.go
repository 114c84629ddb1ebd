package tcp

// ackEvery is how many full-sized segments are acknowledged together (RFC 9293 section 3.8.6.3,
// SHLD-19).
const ackEvery = 2

// quickSegments is how many full segments, as we announced them, make up the start of a
// connection, in which no ACK is delayed: a peer that starts slowly, or that waits for the ACK of
// a short segment (Nagle's algorithm), goes on at once. Octets that answer end it, as they carry
// ACKs. RFC 9293 section 3.8.6.3 allows an ACK for each segment; Linux has the same number
// (TCP_MAX_QUICKACKS).
const quickSegments = 16

// ackState is what the receiver owes the peer.
type ackState struct {
	urgent bool  // an ACK is owed now
	hasDup bool  // dup is to be reported once
	dups   uint8 // further ACKs owed, one per segment out of order, to a peer without SACK
	full   uint8 // full-sized segments since the last ACK
	dup    SACKBlock
}

// duplicate takes note of a segment that was held already; a D-SACK tells its sender.
func (c *Conn) duplicate(s *Segment) {
	if c.useSACK {
		c.ack.hasDup, c.ack.dup = true, SACKBlock{s.Seq, s.Seq + Seq(s.Len)}
	}
}

// Commit takes octets into the stream (RCV.NXT, SACK, ACK, FIN processing). refused: the octets of
// a were not kept; the peer will send them again. A refused piece in order is not answered, unless
// the window is closed: it will look to the peer like a loss, which segments that follow reveal.
// One out of order is answered at once, as any (RFC 5681 section 4.2), and nothing of it is SACKed:
// the peer learns that what it sends now arrives, and is of no use.
func (c *Conn) Commit(now int64, a *Arrival, refused bool) {
	if a.Len == 0 && !a.hasFin || c.state == Closed {
		return
	}
	if refused {
		c.stats.refused.one()
		if !a.InOrder {
			c.answerOutOfOrder()
		} else if c.promised() == 0 {
			c.ack.urgent = true // it probes a closed window, in which rounding had left a place
		}
		c.releaseSpans()
		return
	}
	if a.hasFin && !c.hasFin { // also when all of its text is held already
		c.hasFin, c.finAt = true, a.finAt
	}
	gap := len(c.held.spans) > 0
	switch {
	case a.Len == 0:
	case a.InOrder:
		before := c.edge
		c.edge += uint64(a.Len)
		c.ack.dups = 0
		if gap {
			c.edge = c.held.advance(c.edge)
			c.releaseSpans()
			c.ack.urgent = true // it fills a gap, wholly or in part: RFC 5681 section 4.2
		} else {
			c.delayAck(now, a, c.edge-before)
		}
	default:
		c.stats.oooSegs.one()
		c.mem.totals.OutOfOrder++
		c.held.add(a.Offset, a.Offset+uint64(a.Len))
		c.answerOutOfOrder()
	}
	if c.hasFin && !c.finTaken && c.edge == c.finAt {
		c.takeFIN(now)
	}
}

// answerOutOfOrder owes an ACK for a segment out of order: RFC 5681 section 4.2.
func (c *Conn) answerOutOfOrder() {
	if c.ack.urgent && !c.useSACK && c.ack.dups < 255 {
		c.ack.dups++ // a peer without SACK counts them: section 3.2
	}
	c.ack.urgent = true
}

// delayAck counts in-order octets towards the ACK of every second full segment, and otherwise, when
// the start is over, arms the timer (RFC 9293 section 3.8.6.3).
func (c *Conn) delayAck(now int64, a *Arrival, n uint64) {
	c.ack.full = min(c.ack.full+a.full, ackEvery)
	if c.ack.full >= ackEvery || c.rcvNxt().Sub(c.lastAck) >= ackEvery*int(c.rcvMSS) ||
		!c.answered && c.edge-n < quickSegments*uint64(c.mss) {
		c.ack.urgent = true
	} else if c.timers.delackAt == never {
		c.timers.delackAt = now + c.mem.cfg.DelayedAckNs
	}
}

// takeFIN advances RCV.NXT over the peer's FIN (RFC 9293 section 3.10.7.4, eighth).
func (c *Conn) takeFIN(now int64) {
	c.finTaken = true
	c.ack.urgent = true
	c.giveBackSpans()
	c.events |= EvPeerClosed
	switch c.state {
	case Established:
		c.enter(CloseWait)
	case FinWait1:
		c.enter(Closing) // our FIN is not acknowledged, or inputAck had made it FIN-WAIT-2
	case FinWait2:
		c.enterTimeWait(now)
	}
}

// rcvWindow is the window to advertise now, in octets: constant beyond the left edge, but the right
// edge moves only in steps that are worth it (RFC 9293 section 3.8.6.2.2) and never back (section
// 3.8.6), except for what rounding had added.
func (c *Conn) rcvWindow() int {
	adv := c.promised()
	if wnd := int(c.rcvWnd); wnd-adv >= c.windowStep() {
		return wnd
	}
	return adv
}

// promised is how many octets beyond the left edge the peer was meant to be told of: what rounding
// added is not among them.
func (c *Conn) promised() int { return int(max(c.rightEdge(), c.edge) - c.edge) }

func (c *Conn) rightEdge() uint64 { return c.rcvAdv - uint64(c.rcvRounded) }

// windowStep is the least the right edge moves by.
func (c *Conn) windowStep() int { return max(1, min(int(c.rcvWnd)/2, int(c.rcvMSS))) }

// advertise is the window field for the next segment and the promise that goes with it. The left
// edge moves by octets and the window is told in units of the scale, so that the right edge cannot
// stay where it is (RFC 7323 section 2.4). While the window is as large as it is to be, it is
// rounded up and never moves back. In a window that closes it must not take back what was promised,
// but what rounding up adds is no promise: else each segment shorter than a unit would push the
// right edge on, and a window closed to small segments never. There it may move back, by less than
// a unit, and acceptable knows the farthest.
func (c *Conn) advertise() uint16 {
	field := min(c.rcvWindow()>>c.rcvShift, 65535)
	right := c.edge + uint64(field<<c.rcvShift)
	if right < c.rcvAdv {
		up := (int(c.rcvAdv-c.edge) + 1<<c.rcvShift - 1) >> c.rcvShift
		if up <= 65535 && up<<c.rcvShift <= int(c.rcvWnd) {
			field, right = up, c.edge+uint64(up<<c.rcvShift)
		}
	}
	if right >= c.rightEdge() {
		c.rcvRounded = uint16(max(c.rcvAdv, right) - right)
		c.rcvAdv = max(c.rcvAdv, right)
		return uint16(field)
	}
	return c.advertiseUp(c.edge)
}

// advertiseUp is the window field that says, from left on, where the right edge is, rounded up.
func (c *Conn) advertiseUp(left uint64) uint16 {
	right := c.rightEdge()
	field := min((int(right-min(left, right))+1<<c.rcvShift-1)>>c.rcvShift, 65535)
	c.rcvAdv = max(c.rcvAdv, left+uint64(field<<c.rcvShift))
	c.rcvRounded = uint16(c.rcvAdv - right)
	return uint16(field)
}

// SetReceiveWindow changes how many octets beyond the left edge the peer may send. A larger window
// is told at once when the step is worth a segment; a smaller one takes effect as the left edge
// moves: the right edge never moves back. Below 0: as configured.
func (c *Conn) SetReceiveWindow(n int) {
	if n < 0 {
		n = c.mem.cfg.ReceiveWindow
	}
	c.rcvWnd = int32(max(0, min(n, 65535<<c.rcvShift)))
	if c.state.synchronized() && !c.finTaken && int(c.rcvWnd)-c.promised() >= c.windowStep() {
		c.ack.urgent = true
	}
}
