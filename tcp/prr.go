package tcp

// prr is Proportional Rate Reduction (RFC 6937, with the Slow Start Reduction Bound): during fast recovery what is sent
// follows what arrives, in the proportion of the reduction, so that the pipe has shrunk to ssthresh by the end of it and
// the ACK clock never stops. cwnd is moved so that pipe and cwnd together admit sndcnt octets.
type prr struct {
	delivered int // prr_delivered
	out       int // prr_out
	recoverFS int // RecoverFS
}

// start begins a recovery. RFC 6937 takes FlightSize; what was SACKed before is not going to be delivered any more and
// would leave the reduction short, so it is subtracted (RFC 9937 section 6.2).
func (p *prr) start(b *burst) {
	*p = prr{recoverFS: max(b.flight-b.sacked, 1), delivered: b.delivered}
}

// sndcnt is what may be sent now (RFC 6937 section 3); it may be negative.
func (p *prr) sndcnt(delivered, pipe, ssthresh, smss int) int {
	p.delivered += delivered
	if pipe > ssthresh {
		n := (p.delivered*ssthresh+p.recoverFS-1)/p.recoverFS - p.out
		return (n + smss - 1) / smss * smss // CEIL to what is sent: whole segments, as the RFC's examples count
	}
	limit := max(p.delivered-p.out, delivered) + smss
	return min(ssthresh-pipe, limit)
}

// proportion sets cwnd on an ACK that delivered so many octets, in fast recovery.
func (c *Conn) proportion(delivered int) {
	pipe := c.pipe()
	n := c.recovery.prr.sndcnt(delivered, pipe, c.cong.Ssthresh, c.emss)
	c.cong.Cwnd = pipe + max(n, 0)
}
