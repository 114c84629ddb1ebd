package tcp

// Repeat is Push and Next in one, for the segments of a burst after the first: it queues n octets
// as Push does, and makes t, with which Next has given the segment before, that of these. All that
// the two would find out again is as it was then: so of the header only the sequence number and PSH
// change. False, and nothing was done: they have to be called.
//
// Since that Next, whose segment had octets of the stream and was no retransmission, nothing may
// have been called but Room, which has just said that n octets may go, and Repeat. now is the same.
func (c *Conn) Repeat(now int64, h Handle, n int, psh bool, t *Transmit) bool {
	s := &c.sent
	if !c.repeats() || n > c.EMSS() || n < c.EMSS() && !c.noDelay || s.unsent() {
		return false
	}
	flags := c.pushFlags(n, psh)
	*s.rec(s.end) = record{at: c.pushed, sentAt: now, len: int32(n), handle: h, flags: flags | recLast, tries: 1}
	s.end++
	s.nxt++
	t.Seq = c.seqOf(c.pushed)
	t.Handle, t.Off, t.Len = h, 0, n
	t.Flags = ACK
	if flags&recPSH != 0 {
		t.Flags |= PSH
	}
	c.pushed += uint64(n)
	c.owed.Advance(c.AckedOffset(), c.pushed, now)
	c.sndNxt, c.probed = c.pushed, false
	if !c.cwndAdmits(c.EMSS()) {
		c.recovery.limitedTo = c.sndNxt
	}
	c.recovery.prr.out += n
	c.flow.segsOut++
	c.flow.bytesOut += uint64(n)
	c.armSent(now)
	return true
}

// repeats says whether a segment of new octets is nothing but the one before with other octets:
// something is in flight and nothing of it is lost, no ACK, probe or mark of ECN is due, and there
// is nothing to SACK.
func (c *Conn) repeats() bool {
	rv := &c.recovery
	return c.due == 0 && !c.ack.urgent && rv.phase == phaseOpen && rv.dupAcks == 0 && c.sent.lost == 0 && c.sent.una != c.sent.nxt &&
		!c.ecn.on && !c.mem.cfg.Pacing && len(c.held.spans) == 0 && !c.ack.hasDup
}
