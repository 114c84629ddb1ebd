package tcp

import "github.com/rnicd/rnicd/internal/flight"

// firstLost is the record that nextLost would send. There is one.
func (c *Conn) firstLost() uint32 {
	i := c.sent.find(c.recovery.resendFrom)
	for i != c.sent.nxt && c.sent.rec(i).flags&recLost == 0 {
		i++
	}
	c.recovery.resendFrom = c.sent.rec(i).at
	return i
}

// nextLost sends the first lost record again as cwnd admits (NextSeg rule 1 of RFC 6675 section 4).
func (c *Conn) nextLost(now int64, t *Transmit) bool {
	if c.sndWnd == 0 {
		return false // the timer probes
	}
	i := c.firstLost()
	r := c.sent.rec(i)
	if c.due&dueRepair == 0 {
		if c.recovery.hold != holdNothing {
			return false
		}
		if !c.cwndAdmits(min(r.seqLen(), c.EMSS())) {
			c.recovery.limitedTo = c.sndNxt
			return false
		}
		if !c.paced(now) {
			return false
		}
	}
	if int(r.len) > c.EMSS() && i != c.sent.una && !c.sent.splittable() {
		return false // no slot to cut it with; those before it will free one
	}
	c.due &^= dueRepair
	c.resend(now, i, t)
	return true
}

// resend sends record i again, with the boundaries it has; it is cut only where EMSS has shrunk
// below it.
func (c *Conn) resend(now int64, i uint32, t *Transmit) {
	r := c.sent.rec(i)
	if r.flags&recProbe != 0 {
		c.probeFailed(r)
	}
	n := int(r.len)
	if n > c.EMSS() {
		n = c.EMSS()
		if c.sent.splittable() {
			i = c.sent.split(i, n)
			r = c.sent.rec(i)
			if r.flags&recLost == 0 {
				c.lose(i + 1) // it went out as one that the path no longer carries
			}
		} else {
			r.flags |= recPrefix
		}
	}
	c.sent.markResent(i)
	c.transmit(now, r, n, t)
	t.Retransmit = true
	c.stats.retransmits.one()
	c.mem.totals.Retransmits++
	c.resentOne(now, r)
	if c.timers.rtxAt == never {
		c.armRetransmit(now)
	}
}

// nextNew sends the queued record for the first time if Nagle, cwnd and the peer's window allow,
// and up to most-1 that follow it and are alike.
func (c *Conn) nextNew(now int64, most int, t *Transmit) bool {
	r := c.sent.rec(c.sent.nxt)
	flight := c.flight()
	if int(r.len) > c.EMSS() && r.flags&recProbe == 0 { // EMSS shrank since Push
		if !c.sent.splittable() {
			return false // those in flight will free a slot to cut it with
		}
		r = c.sent.rec(c.sent.split(c.sent.nxt, c.EMSS()))
	}
	fin := r.flags&recFIN != 0
	if !fin {
		if c.recovery.hold == holdAll {
			return false
		}
		if !c.cwndAdmits(int(r.len)) {
			c.recovery.limitedTo = c.sndNxt
			return false
		}
		if !c.paced(now) {
			return false
		}
		if !c.noDelay && int(r.len) < c.EMSS() && flight > 0 && !c.finQueued {
			return false // Nagle: RFC 9293 section 3.7.4
		}
	}
	if usable := int(c.sndWnd) - flight; r.seqLen() > usable {
		return c.squeeze(now, r, usable, t)
	}
	c.sendNew(now, r, t)
	if most > 1 && c.sent.unsent() {
		c.sendMore(now, most-1, t)
	}
	return true
}

// squeeze deals with a record that does not fit into the usable window (RFC 9293 section
// 3.8.6.2.1): it waits, until the persist timer overrides or the window is half of what the peer
// can have at most; then what fits is cut off, or the window probed.
func (c *Conn) squeeze(now int64, r *record, usable int, t *Transmit) bool {
	override := c.due&dueProbe != 0
	c.due &^= dueProbe
	switch {
	case r.flags&recFIN != 0:
		if override {
			c.sendNew(now, r, t)
		}
		return override
	case usable > 0 && (override || usable >= int(c.sndWndMax)/2) && c.sent.splittable():
		c.probeWithdrawn(r)
		r = c.sent.rec(c.sent.split(c.sent.nxt, usable))
		c.sendNew(now, r, t)
		return true
	case override && usable <= 0 && c.flight() == 0:
		c.probe(now, r, t)
		return true
	}
	if c.flight() == 0 && c.timers.rtxAt == never {
		c.armRetransmit(now)
	}
	return false
}

// probe is a zero-window probe: the first octet of r, which stays queued as it is. So when the
// window opens, r goes out whole and an FPDU keeps its alignment, unless the peer takes the octet
// after all.
func (c *Conn) probe(now int64, r *record, t *Transmit) {
	c.header(now, t)
	t.Seq = c.seqOf(r.at)
	t.Handle, t.Off, t.Len = r.handle, int(r.off), 1
	c.probed = true
	c.stats.probes.one()
	c.Record(flight.WindowProbe, uint64(c.timers.probes), 0)
	c.mem.totals.WindowProbes++
	c.flow.bytesOut++
	c.piggyback(t)
}

// sendNew transmits the record at nxt for the first time.
func (c *Conn) sendNew(now int64, r *record, t *Transmit) {
	idle := c.sent.una == c.sent.nxt
	c.sent.nxt++
	c.sndNxt, c.probed = r.endAt(), false
	if c.recovery.dupAcks > 0 && c.recovery.phase == phaseOpen {
		c.recovery.limited += int(r.len)
	}
	if !c.cwndAdmits(c.EMSS()) {
		c.recovery.limitedTo = c.sndNxt
	}
	c.timers.sentAt = now
	c.transmit(now, r, int(r.len), t)
	if c.ecn.on && r.len > 0 {
		c.ecn.markNew(t)
	}
	if idle {
		c.armRetransmit(now) // RFC 6298 section 5.1
	} else {
		c.armSent(now)
	}
}

// sendMore sends up to most queued records along with the new segment t: those that differ from it
// in nothing but their octets, sequence number and PSH. For each it does what nextNew and sendNew
// would do; what those would find out again is as it was for t.
func (c *Conn) sendMore(now int64, most int, t *Transmit) {
	n := t.Len
	if !c.sendsAlike() || n < c.EMSS() && !c.noDelay && !c.finQueued {
		return
	}
	most = min(most, c.admitted(n), int(c.sent.end-c.sent.nxt))
	for t.More < most {
		r := c.sent.rec(c.sent.nxt)
		if int(r.len) != n || r.off != 0 || r.flags&(recFIN|recProbe) != 0 {
			break
		}
		r.sentAt, r.tries = now, 1
		c.sent.nxt++
		t.More++
	}
	octets := t.More * n
	c.sndNxt += uint64(octets)
	if !c.cwndAdmits(c.EMSS()) {
		c.recovery.limitedTo = c.sndNxt
	}
	c.recovery.prr.out += octets
	c.flow.segsOut += uint64(t.More)
	c.flow.bytesOut += uint64(octets)
	c.armSent(now)
}

// armSent is armLoss after another segment was sent, for the first time.
func (c *Conn) armSent(now int64) {
	if c.timers.kind == timerLossProbe {
		c.timers.rtxAt = min(now+c.pto(), c.rtoAt) // as armLoss: this is every segment of a burst
		return
	}
	c.armLoss(now)
}

// transmit fills t with the first n octets of r and takes note of the transmission.
func (c *Conn) transmit(now int64, r *record, n int, t *Transmit) {
	r.sentAt = now
	c.recovery.burst.at = -1
	c.recovery.prr.out += n
	if c.mem.cfg.Pacing {
		c.pace.sent(now, n, c.mem.cfg.PacingBurst, c.EMSS(), c.cong.Cwnd, c.cong.Ssthresh, c.rtt.srtt)
	}
	if r.tries < 255 {
		r.tries++
	}
	c.header(now, t)
	t.Seq = c.seqOf(r.at)
	t.Off, t.Len = int(r.off), n
	t.Handle = r.handle
	if r.flags&recPSH != 0 {
		t.Flags |= PSH
	}
	if r.flags&recFIN != 0 && n == int(r.len) {
		t.Flags |= FIN
	}
	c.flow.bytesOut += uint64(n)
	c.piggyback(t)
}
