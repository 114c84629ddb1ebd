package tcp

import (
	"github.com/rnicd/rnicd/internal/cc"

	"github.com/rnicd/rnicd/internal/flight"
)

// Loss recovery: what an ACK means for segments that are missing, and for cwnd. With SACK, RACK
// (rack.go) finds what is lost, a probe (tlp.go) draws the ACK that is overdue, PRR (prr.go) meters
// fast recovery, and what proves needless is taken back (undo.go, frto.go). Without SACK it is RFC
// 6582. In both, a record is "lost" when it is to be sent again, and Next sends lost records, in
// order, before new ones as cwnd admits.

// recovery is what is known of the loss episode, as far as it is of no use once all is
// acknowledged. What outlives that stands in the Conn: point, undo, tlp, reo.
type recovery struct {
	phase   phase
	hold    hold
	dupAcks int32 // since SND.UNA moved; after a timeout also since they had it sent again
	strays  int32 // so many may come of segments that were sent before SND.UNA was last
	// octets sent beyond cwnd on duplicate ACKs: not part of FlightSize (RFC 5681 section 3.2)
	limited int

	sackedTo   uint64 // RACK.fack: end of the highest SACKed record
	resendFrom uint64 // no lost record before this
	limitedTo  uint64 // SND.NXT when cwnd last held us back
	timedOutAt uint64 // SND.UNA at the last timeout
	reducedAt  int64  // when cwnd was last reduced in this episode
	repairedTo uint64 // SND.UNA when it last moved by a segment in this episode, or at its timeout,
	repairedAt int64  // and when it moved; 0: it has not

	burst burst

	rack rack
	prr  prr
	frto frto
}

type phase uint8

const (
	phaseOpen     phase = iota
	phaseRecovery       // fast recovery
	phaseLoss           // after a timeout: slow start over what was lost
)

// burst is what was outstanding before a burst of ACKs. A Poller takes in several at one time
// before it sends again, and together they are to mean what one ACK for all would: FlightSize (RFC
// 5681 equation 4) and RecoverFS (RFC 9937 section 6.1) are what stood before the burst, not what
// it has left over.
type burst struct {
	at        int64 // -1: none
	flight    int
	sacked    int
	delivered int // by those of its ACKs that have been dealt with
}

// before is the burst that now belongs to; with nothing in flight it is empty, and shared by all
// such Conns.
func (c *Conn) before(now int64) *burst {
	b := &c.recovery.burst
	if b.at != now && c.inFlight != &c.mem.none {
		*b = burst{at: now, flight: c.flight(), sacked: c.sent.sacked}
	}
	return b
}

// hold keeps segments back until the next ACK, whatever cwnd admits.
type hold uint8

const (
	holdNothing hold = iota
	holdLost         // lost records: F-RTO asks with new ones first
	holdAll          // all but one record: the path MTU fell (RFC 1191 section 6.4)
)

// repair is what an ACK does to loss recovery and to cwnd.
func (c *Conn) repair(now int64, a *acked) {
	rv := &c.recovery
	recovering := rv.phase == phaseRecovery // the ACK that ends recovery does not grow cwnd either
	if a.octets > 0 {
		rv.dupAcks, rv.limited, rv.strays = 0, 0, max(a.again-1, 0)
		if rv.hold == holdAll {
			rv.hold = holdNothing
		}
	}
	if a.duplicate {
		rv.dupAcks++
	}
	if a.ece {
		c.markAcked(now)
	}
	if c.useSACK {
		c.repairSACK(now, a)
	} else {
		c.repairNewReno(now, a)
	}
	rv.burst.delivered += a.delivered
	// Where segments overtake each other the left edge moves in leaps, and a leap counts as one ACK
	// does. Then it is arrival in whatever order that lets cwnd grow (as in Linux,
	// tcp_may_raise_cwnd); each octet counts once either way.
	octets := a.octets
	if c.reo.seen {
		octets = a.delivered
	}
	if octets > 0 {
		marked := 0
		if a.ece {
			marked = octets
		}
		(*c.control).Acked(&c.cong, cc.Sample{
			Now: now, Acked: octets, Delivered: a.delivered, Marked: marked, Flight: a.flight,
			SMSS: c.EMSS(),
			RTT:  a.rtt, SRTT: c.rtt.srtt, MinRTT: c.rtt.minRTT(), Una: c.sndUna, Nxt: c.sndNxt,
			Limited:      a.limited,
			Recovering:   recovering || rv.phase == phaseRecovery || a.ece,
			AfterTimeout: rv.phase == phaseLoss,
			Paced:        c.mem.cfg.Pacing,
		})
	}
}

// repairSACK runs RFC 8985 on an ACK.
func (c *Conn) repairSACK(now int64, a *acked) {
	rv := &c.recovery
	c.rackUpdate(now, a)
	if rv.phase == phaseOpen && c.sent.sackedRecs|c.sent.resent == 0 && !a.dsack && !c.tlpActive &&
		!rv.rack.hasDsackRound && rv.rack.reoAt == never &&
		(c.sent.una == c.sent.nxt || c.sent.rec(c.sent.una).sentAt >= rv.rack.xmitTs) {
		return // all is in order
	}
	if c.tlpActive {
		c.probeAcked(now, a)
	}
	if a.dsack {
		c.needless(now, a.dsackEnd)
	}
	if c.undo.echo == echoAwaited && a.octets > 0 {
		c.echoTells(now, a)
	}
	exiting := rv.phase != phaseOpen && c.sndUna >= c.point
	if exiting {
		c.leaveRecovery()
	}
	if rv.frto.step != 0 {
		c.frtoAcked(now, a)
	}
	if exiting || a.dsack || rv.rack.hasDsackRound {
		c.adapt(a.dsack, exiting)
	}
	lost, again := c.detectLost(now)
	if lost {
		c.foundLost(now, again)
	}
	if rv.phase == phaseRecovery && a.delivered > 0 {
		c.proportion(a.delivered, a.octets > 0 && !lost)
	}
}

// foundLost answers what detectLost has found, on an ACK or by the reordering timer: a reduction
// begins, or begins again (again), and what has left the pipe makes no room.
func (c *Conn) foundLost(now int64, again bool) {
	rv := &c.recovery
	switch {
	case rv.phase == phaseOpen:
		c.enterRecovery(now)
		rv.prr.start(c.before(now))
	case again:
		c.reduceAgain(now, c.before(now).flight)
	}
	if rv.phase == phaseRecovery {
		c.proportion(0, false)
	}
}

// enterRecovery starts fast retransmit and fast recovery.
func (c *Conn) enterRecovery(now int64) {
	rv := &c.recovery
	rv.phase = phaseRecovery
	rv.repairedTo = c.sndUna
	c.point = c.sndNxt
	c.tlpActive = false // RFC 8985 section 7.1
	c.undo.start()
	c.stats.fastRetransmits.one()
	c.Record(flight.FastRepair, c.sndUna, uint64(c.flight()))
	c.mem.totals.FastRetransmits++
	rv.reducedAt = now
	// FlightSize counts what is SACKed as well: where one recovery follows on another it is several
	// times cwnd, and half of it would be no reduction. RFC 5681 equation 4 is an upper bound.
	c.reduce(now, min(c.before(now).flight-rv.limited, c.cong.Cwnd))
	rv.limited = 0
	// the first retransmission does not wait for cwnd (RFC 6675 section 5, step 4.3)
	c.due |= dueRepair
}

// reduce answers congestion with flight octets outstanding: ssthresh falls, and the peer is told by
// CWR.
func (c *Conn) reduce(now int64, flight int) {
	(*c.control).Reduce(&c.cong, cc.Loss, now, flight, c.EMSS())
	c.sayReduced()
}

// reduceAgain answers the loss of a retransmission: a second signal of congestion (RFC 5681 section
// 4.3), counted once for all that were sent since the last reduction.
func (c *Conn) reduceAgain(now int64, flight int) {
	rv := &c.recovery
	c.undo.possible = false
	rv.reducedAt = now
	flight = min(flight, c.cong.Ssthresh) // flight still counts what is SACKed
	if rv.phase == phaseLoss {
		c.reduce(now, flight)
		c.cong.Cwnd = min(c.cong.Cwnd, c.cong.Ssthresh)
		return
	}
	c.cong.Cwnd = c.cong.Ssthresh // what PRR makes of it in between is not the window to reduce
	c.point = c.sndNxt
	c.reduce(now, flight)
	rv.prr.start(c.before(now))
	c.proportion(0, false)
}

// leaveRecovery ends the episode: all that was outstanding at its begin is acknowledged.
func (c *Conn) leaveRecovery() {
	rv := &c.recovery
	if rv.phase == phaseRecovery && c.useSACK {
		c.cong.Cwnd = c.cong.Ssthresh // RFC 9937 section 6.4, and RFC 5681 section 4.3: not more
	}
	rv.phase = phaseOpen
	rv.hold = holdNothing
	rv.frto.step = 0
}

// lose marks record i to be sent again.
func (c *Conn) lose(i uint32) {
	c.sent.markLost(i)
	c.recovery.resendFrom = min(c.recovery.resendFrom, c.sent.rec(i).at)
}

// loseOldest marks the record at SND.UNA and lets it go at once, unless it is being dealt with.
func (c *Conn) loseOldest() {
	if c.sent.una == c.sent.nxt {
		return
	}
	r := c.sent.rec(c.sent.una)
	if r.flags&(recSacked|recLost|recResent) == 0 {
		c.lose(c.sent.una)
	}
	if r.flags&recLost != 0 {
		c.due |= dueRepair
	}
}

// loseOversize marks what was sent in segments that the path no longer carries, once per decrease.
// Nothing of it was lost to congestion: cwnd stays, one segment goes, and the rest waits for its
// ACK (RFC 1191 section 6.4).
func (c *Conn) loseOversize() {
	found := false
	for i := c.sent.una; i != c.sent.nxt; i++ {
		if r := c.sent.rec(i); int(r.len) > c.EMSS() && r.flags&(recSacked|recLost) == 0 {
			r.flags &^= recProbe
			c.lose(i)
			found = true
		}
	}
	if found {
		c.due |= dueRepair
		c.recovery.hold = holdAll
	}
}

// repairNewReno is RFC 6582 section 3.2, for peers without SACK. After a timeout all that was
// outstanding is sent again, the oldest first. What of that is lost once more is found by
// duplicate ACKs, and by what was sent after it and is acknowledged before it. Else each such
// loss would take another timeout, and as none of these ACKs gives a sample (Karn's rule), each
// twice as long as the one before.
func (c *Conn) repairNewReno(now int64, a *acked) {
	rv := &c.recovery
	w := &c.cong
	if c.undo.echo == echoAwaited && a.octets > 0 {
		c.echoTells(now, a)
	}
	if a.duplicate {
		switch {
		case rv.phase == phaseRecovery:
			w.Cwnd += c.EMSS()
		case !c.dupAcksTell():
		case rv.phase == phaseOpen:
			c.enterRecovery(now)
			c.loseOldest()
			w.Cwnd = w.Ssthresh + 3*c.EMSS()
		default:
			c.loseAgain(now)
		}
		return
	}
	if a.octets == 0 || rv.phase == phaseOpen {
		return
	}
	if c.sndUna >= c.point {
		if rv.phase == phaseRecovery {
			w.Cwnd = min(w.Ssthresh, max(c.flight(), c.EMSS())+c.EMSS())
		}
		c.leaveRecovery()
		return
	}
	if rv.phase == phaseLoss {
		c.loseSentBefore(a.rackAt)
	}
	c.loseOldest() // a partial ACK: the next hole
	if rv.phase == phaseLoss {
		return
	}
	w.Cwnd = max(w.Cwnd-a.octets, 0)
	if a.octets >= c.EMSS() {
		w.Cwnd += c.EMSS()
	}
	w.Cwnd = max(w.Cwnd, c.EMSS())
}

// dupAcksTell says whether duplicate ACKs tell that the segment at SND.UNA is lost. Until more is
// acknowledged than was outstanding at the last loss, segments may draw them that were sent again
// needlessly: n-1 of the n that one ACK covers. While these are repaired after a timeout, three
// more than that tell, if as many segments were sent after the one at SND.UNA: a heuristic that
// RFC 6582 section 4 allows.
func (c *Conn) dupAcksTell() bool {
	rv := &c.recovery
	if rv.phase == phaseOpen {
		return rv.dupAcks >= dupThresh && (c.point == 0 || c.sndUna > c.point)
	}
	return rv.dupAcks >= dupThresh+rv.strays && c.flying() > dupThresh
}

// flying is how many segments are in flight after a timeout, without SACK: while some are lost no
// new ones are sent.
func (c *Conn) flying() int32 {
	if c.sent.lost == 0 {
		return int32(c.sent.nxt - c.sent.una)
	}
	return int32(c.sent.resent)
}

// loseAgain answers duplicate ACKs after a timeout: what was sent again is lost again.
func (c *Conn) loseAgain(now int64) {
	rv := &c.recovery
	c.stats.lostRetrans.one()
	c.Record(flight.LostRepair, c.sndUna, 0)
	c.reduceAgain(now, c.before(now).flight)
	c.lose(c.sent.una)
	c.due |= dueRepair
	rv.dupAcks, rv.strays = 0, max(c.flying()-rv.dupAcks, 0)
}

// loseSentBefore marks what is in flight and was last sent before at. It looks at no segment twice
// between two transmissions.
func (c *Conn) loseSentBefore(at int64) {
	for i := c.sent.oldestUnjudged(); i != c.sent.nxt &&
		c.sent.rec(i).sentAt < at; i = c.sent.oldestUnjudged() {
		c.lose(i)
	}
	for c.sent.resent > 0 && c.sent.rec(c.sent.resentFirst).sentAt < at {
		c.lose(c.sent.resentFirst)
	}
}

// timedOut is RFC 6298 section 5.4 to 5.7 and RFC 5681 section 3.1: the oldest segment is sent
// again at once, what else is lost in slow start.
func (c *Conn) timedOut(now int64) {
	rv := &c.recovery
	c.stats.timeouts.one()
	c.Record(flight.Timeout, c.sndUna, uint64(c.rto()))
	c.mem.totals.Timeouts++
	if c.sent.rec(c.sent.una).flags&recSacked != 0 {
		c.forgetSACK() // RFC 2018 section 8: it was SACKed and yet not acknowledged
	}
	again := rv.phase == phaseLoss
	first := !again || rv.timedOutAt != c.sndUna
	rv.timedOutAt = c.sndUna
	(*c.control).Timeout(&c.cong, now, min(c.flight(), max(c.cong.Cwnd, c.cong.Ssthresh)),
		c.EMSS(), first)
	c.sayReduced()
	c.rtt.backOff()
	rv.phase = phaseLoss
	rv.repairedTo = c.sndUna
	c.point = c.sndNxt // no second reduction for this window: RFC 6675 section 5.1
	rv.dupAcks, rv.limited, rv.strays = 0, 0, 0
	rv.hold = holdNothing
	rv.limitedTo = c.sndNxt
	rv.reducedAt = now
	c.tlpActive = false
	if first {
		c.undo.start()
	}
	rv.frto.start(c, !again)
	c.loseAtTimeout(now)
	c.due |= dueRepair
	c.blackHole()
}
