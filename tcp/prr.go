package tcp

// prr is Proportional Rate Reduction (RFC 9937; its variables): during fast recovery what is sent
// follows what arrives, in the proportion of the reduction, so that what is in flight has shrunk to
// ssthresh by the end of it and the ACK clock never stops. cwnd is moved so that inflight, which is
// pipe here, and cwnd together admit SndCnt octets.
type prr struct {
	delivered int // prr_delivered
	out       int // prr_out
	recoverFS int // RecoverFS
}

// start begins an episode (section 6.1). What was SACKed before is not going to be delivered any
// more; what the burst of ACKs delivers that begins the episode is counted on both sides.
func (p *prr) start(b *burst) {
	*p = prr{recoverFS: max(b.flight-b.sacked, 1), delivered: b.delivered}
}

// sndCnt is what may be sent now, after so much was delivered (section 6.2). safe is SafeACK, next
// the length of the segment that would go next: the proportion counts octets, and what is sent is
// segments.
func (p *prr) sndCnt(delivered, inflight, ssthresh, smss, next int, safe bool) int {
	p.delivered += delivered
	n := 0
	if inflight > ssthresh {
		n = (p.delivered*ssthresh+p.recoverFS-1)/p.recoverFS - p.out
		n = (n + next - 1) / next * next // whole segments, as the RFC's examples count
	} else {
		n = max(p.delivered-p.out, delivered) // PRR-CRB
		if safe {
			n += smss // PRR-SSRB
		}
		n = min(ssthresh-inflight, n)
	}
	if p.out == 0 && n == 0 {
		n = smss // the fast retransmit that starts the episode
	}
	return max(n, 0)
}

// proportion sets cwnd in fast recovery: after an ACK that delivered so many octets, or after
// losses were found without any. The RFC's steps end at once when nothing was delivered. Where that
// finds losses, inflight falls, and a cwnd left as it was would let as much go: SndCnt is then what
// earlier ACKs have left.
func (c *Conn) proportion(delivered int, safe bool) {
	pipe := c.pipe()
	c.cong.Cwnd = pipe + c.recovery.prr.sndCnt(delivered, pipe, c.cong.Ssthresh, c.EMSS(),
		c.nextLen(), safe)
}

// nextLen is how long the segment is that would go next. Of one that the layer above has not made
// yet it is EMSS, which Room promises.
func (c *Conn) nextLen() int {
	n := c.EMSS()
	switch {
	case c.sent.lost > 0:
		n = c.sent.rec(c.firstLost()).seqLen()
	case c.sent.unsent():
		n = c.sent.rec(c.sent.nxt).seqLen()
	}
	return min(n, c.EMSS())
}
