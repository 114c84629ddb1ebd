package tcp

import "github.com/rnicd/rnicd/internal/flight"

// Tail loss probes (RFC 8985 section 7): when the ACKs of the end of a flight are overdue, one
// segment is sent for the ACK that it draws; RACK judges by that. Without it only the
// retransmission timer would find that a burst's last segments, or its only ACK, were lost.
//
// Section 7.2 arms the probe timer in no recovery, because there other ACKs are under way. A peer
// that polls sends one ACK per burst, and when the one that a repair draws is lost, nothing is. So
// a recovery is probed too, with its oldest segment, as QUIC does (RFC 9002 section 6.2), under the
// same conditions: one probe at a time, and a sample of the round trip between two.

// tlp is the state of section 7.1, while Conn.tlpActive: a probe's outcome is not known.
type tlp struct {
	endSeq    uint64 // TLP.end_seq; of a recovery's probe, the end of its segment
	sentAt    int64
	flight    int32 // before it
	isRetrans bool  // it was a retransmission
	repair    bool  // it was sent in a recovery
	again     bool  // and had been sent again there before
}

// pto is TLP_calc_PTO without the bound by the RTO, for a connection that mayProbe: there is a
// sample of the round trip, be it the handshake's. Without one section 7.2 has a PTO of one
// second, after which section 7.3 forbids the probe, so that the retransmission timer runs alone.
//
// max_ack_delay is allowed for not only where one segment is in flight but wherever the peer may
// hold its ACK: less than two full ones (RFC 9293 section 3.8.6.3). What fills a gap is
// acknowledged at once.
//
// Config.PTOMinNs bounds it from below: on paths of microseconds a Poller's turn, and the peer's,
// is longer than the round trip. A kernel at the other end may be kept from its ACK for longer
// still; its own bound is two ticks of 1 to 4 ms (Linux, TCP_TIMEOUT_MIN).
func (c *Conn) pto() int64 {
	d := 2 * c.rtt.srtt
	if c.flight() < 2*c.EMSS() && c.recovery.phase == phaseOpen {
		d += c.mem.cfg.PeerAckDelayNs
	}
	return max(d, c.mem.cfg.PTOMinNs)
}

// mayProbe says whether the timer may be the probe's (sections 7.2 and 7.3). A probe that is
// cumulatively acknowledged is not in flight any more, though D-SACK may yet tell how it fared.
func (c *Conn) mayProbe() bool {
	rv := &c.recovery
	if !c.useSACK || !c.rtt.fresh || c.tlpActive && c.sndUna < c.tlp.endSeq || c.sndWnd == 0 {
		return false
	}
	if rv.phase != phaseOpen {
		// else the peer has reneged
		return rv.hold == holdNothing && c.sent.rec(c.sent.una).flags&recSacked == 0
	}
	return c.sent.sackedRecs == 0 && c.sent.lost == 0
}

// excusesMax bounds how often one probe is put off. It then waits for what was left of its time,
// a PTO at most.
const excusesMax = 3

// Excuse puts off a loss probe that came due in the away nanoseconds up to now, in which the
// caller looked at nothing: time in which the caller does not look for an ACK does not count.
// What keeps one end's Poller away, the machine's host or other threads, often keeps the peer's
// away as well, so that no ACK need have come meanwhile. Call it after what has come was read,
// before Expire. A late retransmission timer is not put off: no caller is away for that long by
// chance. The end of the connection is (pause.go).
func (c *Conn) Excuse(now, away int64) {
	c.outlast(now, away)
	t := &c.timers
	if t.kind != timerLossProbe || t.rtxAt >= now || t.rtxAt <= now-away || t.excused >= excusesMax {
		return
	}
	t.excused++
	t.rtxAt += away
	c.rtoAt = max(c.rtoAt, t.rtxAt)
}

// probeDue handles the PTO: Next sends the probe, and the timer is the retransmission timer again.
func (c *Conn) probeDue(now int64) {
	p := &c.tlp
	if c.tlpActive && !p.repair && c.sndUna >= p.endSeq {
		c.probeRepaired(now) // a whole PTO after its ACK no D-SACK has come
	}
	if c.mayProbe() {
		c.due |= dueLossProbe
	}
	c.rtoAt = now + c.rto()
	c.timers.kind, c.timers.rtxAt = timerRetransmit, c.rtoAt
}

// nextLossProbe is TLP_send_probe: a segment that was never sent if there is one and the peer's
// window admits it, else the last one again. It does not ask cwnd.
func (c *Conn) nextLossProbe(now int64, t *Transmit) bool {
	c.due &^= dueLossProbe
	if c.sent.una == c.sent.nxt || !c.mayProbe() {
		return false
	}
	p := &c.tlp
	c.tlpActive = true
	*p = tlp{isRetrans: true, sentAt: now, flight: int32(c.flight())}
	switch {
	case c.recovery.phase != phaseOpen:
		r := c.sent.rec(c.sent.una)
		p.repair, p.again, p.endSeq = true, r.flags&recResent != 0, r.endAt()
		c.resend(now, c.sent.una, t)
	case c.sent.unsent() && c.probeFits(c.sent.rec(c.sent.nxt)):
		p.isRetrans = false
		c.sendNew(now, c.sent.rec(c.sent.nxt), t)
		p.endSeq = c.sndNxt
	default:
		p.endSeq = c.sndNxt
		// that a probe of the path was lost tells of no congestion
		c.tlpActive = c.sent.rec(c.sent.nxt-1).flags&recProbe == 0
		c.resend(now, c.sent.nxt-1, t)
	}
	c.rtt.fresh = false
	c.stats.lossProbes.one()
	c.Record(flight.TailProbe, p.endSeq, uint64(p.flight))
	c.mem.totals.LossProbes++
	c.rtoAt = now + c.rto()
	c.timers.kind, c.timers.rtxAt = timerRetransmit, c.rtoAt
	return true
}

// probeFits says whether a segment that was never sent may be the probe. Where round trips are
// shorter than the time for which the peer may hold the ACK of a lone segment, it may not: a
// duplicate is acknowledged at once.
func (c *Conn) probeFits(r *record) bool {
	return c.pto() >= c.mem.cfg.PeerAckDelayNs && int(r.len) <= c.EMSS() &&
		r.seqLen() <= int(c.sndWnd)-c.flight()
}

// probeAcked is TLP_process_ack (section 7.4.2).
func (c *Conn) probeAcked(now int64, a *acked) {
	p := &c.tlp
	if c.sndUna < p.endSeq {
		return
	}
	switch {
	case p.repair:
		c.tlpActive = false
		if p.again && c.recovery.phase != phaseOpen && now-p.sentAt >= c.rtt.minRTT() &&
			!(a.dsack && a.dsackEnd == p.endSeq) {
			c.stats.lostRetrans.one()
			c.Record(flight.LostRepair, c.sndUna, 0)
			c.reduceAgain(now, int(p.flight)) // the retransmission before it was lost
		}
	case !p.isRetrans:
		c.tlpActive = false
	case a.dsack && a.dsackEnd == p.endSeq:
		c.tlpActive = false // case 1: both copies arrived
	case c.sndUna > p.endSeq:
		c.probeRepaired(now)
	case a.bare && a.octets == 0:
		c.tlpActive = false // case 2: both arrived, and the peer knows no D-SACK
	}
}

// probeRepaired handles a single loss that the probe has repaired: congestion control must know of
// it.
func (c *Conn) probeRepaired(now int64) {
	c.tlpActive = false
	c.stats.probesRepaired.one()
	if c.recovery.phase != phaseOpen {
		return
	}
	c.undo.possible = false
	c.reduce(now, int(c.tlp.flight))
	c.cong.Cwnd = min(c.cong.Cwnd, c.cong.Ssthresh)
}
