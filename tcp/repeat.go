package tcp

// Repeat is Push and Next in one, for the segments of a burst after the first: it queues n octets
// as Push does, and makes t, with which Next has given the segment before, that of these. All that
// the two would find out again is as it was then: so of the header only the sequence number and PSH
// change. False, and nothing was done: they have to be called.
//
// Since that Next, whose segment had octets of the stream and was no retransmission, nothing may
// have been called but Room, which has just said that n octets may go, RunRoom, Repeat and
// RepeatRun. now is the same.
func (c *Conn) Repeat(now int64, h Handle, n int, psh bool, t *Transmit) bool {
	if !c.repeats(n) {
		return false
	}
	flags := c.pushFlags(n, psh)
	t.Seq, t.Handle, t.Off, t.Len, t.Flags = c.seqOf(c.pushed), h, 0, n, ACK
	if flags&recPSH != 0 {
		t.Flags |= PSH
	}
	c.appendSent(now, h, n, flags)
	c.repeated(now, 1, n)
	return true
}

// RunRoom is how many segments of n octets each may go by RepeatRun, most at the most. It is called
// as Repeat is, and needs no Room before it. None of them gets PSH: where one is due, or a probe,
// Room and Repeat have to be called.
func (c *Conn) RunRoom(now int64, n, most int) int {
	if c.state != Established && c.state != CloseWait || c.finQueued || !c.repeats(n) || !c.cwndAdmits(c.EMSS()) {
		return 0
	}
	if probe, wait := c.probeRoom(now); wait || probe > 0 {
		return 0
	}
	return min(most, c.sent.free()-splitReserve, (c.cong.Cwnd-c.pipe())/c.EMSS(),
		(int(c.sndWnd)-c.flight())/c.EMSS(), (int(c.sndWndMax)/2-int(c.unpushed))/n)
}

// RepeatRun is Repeat, without PSH, of as many segments of n octets each as there are handles: at
// least one, and as many as RunRoom has just allowed. t is the first of them; those after it differ
// in the sequence number.
func (c *Conn) RepeatRun(now int64, handles []Handle, n int, t *Transmit) {
	t.Seq, t.Off, t.Len, t.Flags = c.seqOf(c.pushed), 0, n, ACK
	c.unpushed += uint32(len(handles) * n)
	for _, h := range handles {
		c.appendSent(now, h, n, 0)
	}
	c.repeated(now, len(handles), n)
}

// appendSent queues n octets that leave at once.
func (c *Conn) appendSent(now int64, h Handle, n int, flags recordFlags) {
	s := &c.sent
	*s.rec(s.end) = record{at: c.pushed, sentAt: now, len: int32(n), handle: h, flags: flags | recLast, tries: 1}
	s.end++
	s.nxt++
	c.pushed += uint64(n)
}

// repeated takes note that the last k records, of n octets each, have left. The peer's clock runs
// already, for what was in flight before.
func (c *Conn) repeated(now int64, k, n int) {
	c.sndNxt, c.probed = c.pushed, false
	if !c.cwndAdmits(c.EMSS()) {
		c.recovery.limitedTo = c.sndNxt
	}
	c.recovery.prr.out += k * n
	c.flow.segsOut += uint64(k)
	c.flow.bytesOut += uint64(k * n)
	c.armSent(now)
}

// repeats says whether a segment of n new octets is nothing but the one before with other octets:
// it is full or need not wait until it is, something is in flight and nothing of it is lost, no
// ACK, probe or mark of ECN is due, and there is nothing to SACK.
func (c *Conn) repeats(n int) bool {
	rv := &c.recovery
	return n <= c.EMSS() && (n == c.EMSS() || c.noDelay) && !c.sent.unsent() &&
		c.due == 0 && !c.ack.urgent && rv.phase == phaseOpen && rv.dupAcks == 0 && c.sent.lost == 0 && c.sent.una != c.sent.nxt &&
		!c.ecn.on && !c.mem.cfg.Pacing && len(c.held.spans) == 0 && !c.ack.hasDup
}
