package tcp

import "math"

// A caller queues segments before its device takes them. A timer for loss that expires meanwhile
// is about a segment that has not left: nothing can have been lost, and to send it again would
// not have it arrive sooner. Linux looks for the same in tcp_send_loss_probe and
// tcp_retransmit_skb (skb_still_in_host_queue).

// Timed is the segment that the timer due at now is about: the oldest in flight for the
// retransmission timer, the newest for a loss probe. false: no such timer is due, or the peer has
// acknowledged nothing for as long as the user timeout: then the caller's device is given up as a
// peer is.
func (c *Conn) Timed(now int64) (Handle, bool) {
	t := &c.timers
	if now < t.rtxAt || !c.state.synchronized() || c.sent.una == c.sent.nxt ||
		now >= after(t.progressAt, c.mem.cfg.UserTimeoutNs) {
		return NoHandle, false
	}
	switch t.kind {
	case timerLossProbe:
		return c.sent.rec(c.sent.nxt - 1).handle, true
	case timerRetransmit:
		return c.sent.rec(c.sent.una).handle, true
	}
	return NoHandle, false
}

// PutOff restarts the timer that is due at now, because what Timed gives left the caller's queue
// only at from, or, when that is now, has not left it. It may still be due then.
func (c *Conn) PutOff(from, now int64) {
	t := &c.timers
	if t.kind == timerLossProbe && now < c.rtoAt {
		t.rtxAt = min(from+c.pto(), c.rtoAt)
		return
	}
	c.rtoAt = from + c.rto()
	t.kind, t.rtxAt = timerRetransmit, c.rtoAt
	if from == now && t.expiries < math.MaxUint8 {
		t.expiries++ // so that R2 is the user timeout
		t.heldBack++
	}
}
