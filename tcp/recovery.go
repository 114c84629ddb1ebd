package tcp

import "github.com/rnicd/rnicd/tcp/cc"

// Loss detection and recovery. With SACK: RFC 6675, told by records rather than by octets, since the ring knows where
// segments begin. Without: RFC 6582. In both, a record is "lost" when it is to be sent again, and Next sends lost
// records, in order, before new ones as cwnd admits.

// recovery is what is known of the loss episode.
type recovery struct {
	phase   phase
	dupAcks int    // since SND.UNA moved
	point   uint64 // RecoveryPoint: the episode ends when SND.UNA gets here
	any     bool   // point has been set
	limited int    // octets sent beyond cwnd on duplicate ACKs: not part of FlightSize (RFC 5681 section 3.2)

	order      uint64                // transmissions so far
	orders     [ordersMax]uint64     // of what one ACK delivers
	ordersLen  int                   // of those, for retransmissions to compare themselves with
	reducedAt  uint64                // order when cwnd was last reduced
	seen       [sackBlocksMax]octets // of the last ACK with SACK
	sackedTo   uint64                // end of the highest SACKed record
	resentAt   int64                 // when the latest retransmission that has arrived was sent
	lostBelow  uint64                // records before this are SACKed, lost, or resent
	resendFrom uint64                // no lost record before this
	limitedTo  uint64                // SND.NXT when cwnd last held us back
	timedOutAt uint64                // SND.UNA at the last timeout

	dupThresh int // records that overtake one before it is lost; grows with the reordering seen
	suspect   int // how far a record that was resent had been overtaken: reordering, if a D-SACK follows

	// What a reduction that proves needless takes back (RFC 3708, as D-SACK tells it).
	undoable bool
	undoFrom uint64 // SND.UNA at the reduction
	undoLeft int    // retransmissions not yet reported as duplicates
}

type phase uint8

const (
	phaseOpen     phase = iota
	phaseRecovery       // fast recovery
	phaseLoss           // after a timeout: slow start over what was lost
)

const (
	dupThreshMin = 3
	dupThreshMax = 100 // beyond that reordering is not told from loss
	ordersMax    = 16
)

func (r *recovery) reset() { *r = recovery{dupThresh: dupThreshMin} }

// delivered takes note that record i, which was not SACKed, has arrived; original says that it surely was its first
// transmission that did.
func (c *Conn) delivered(now int64, i uint32, original bool, a *acked) {
	rv := &c.recovery
	r := c.sent.rec(i)
	a.delivered += r.seqLen()
	if r.flags&recEver == 0 || now-r.sentAt >= c.rtt.minRTT { // else it may be the first transmission that arrived
		if c.sent.resent > 0 && rv.ordersLen < ordersMax {
			rv.orders[rv.ordersLen] = r.order
			rv.ordersLen++
		}
		if r.flags&recEver != 0 && !original {
			rv.resentAt = max(rv.resentAt, r.sentAt)
			a.resent = true
		}
	}
	if r.endAt() >= a.sackedTo {
		return
	}
	overtaken := int(c.sent.find(a.sackedTo-1) - i)
	if original {
		a.reordered = max(a.reordered, overtaken)
	} else {
		rv.suspect = max(rv.suspect, overtaken)
	}
}

// repair is what an ACK does to loss recovery and to cwnd.
func (c *Conn) repair(now int64, a *acked) {
	rv := &c.recovery
	recovering := rv.phase == phaseRecovery // the ACK that ends recovery does not grow cwnd either
	if a.octets > 0 {
		rv.dupAcks, rv.limited = 0, 0
	}
	if c.useSACK {
		if a.reordered > 0 {
			rv.overtook(a.reordered)
		}
		if a.dsack {
			c.undo()
		}
		c.repairSACK(now, a)
	} else {
		c.repairNewReno(now, a)
	}
	if a.octets > 0 {
		c.control.Acked(&c.cong, cc.Sample{
			Now: now, Acked: a.octets, Delivered: a.delivered, Flight: a.flight, SMSS: c.emss,
			RTT: a.rtt, SRTT: c.rtt.srtt, MinRTT: c.rtt.minRTT, Una: c.sndUna, Nxt: c.sndNxt,
			Limited: a.limited, Recovering: recovering || rv.phase == phaseRecovery, AfterTimeout: rv.phase == phaseLoss,
		})
	}
}

// overtook raises the threshold to the reordering seen.
func (r *recovery) overtook(n int) { r.dupThresh = min(max(r.dupThresh, n+1), dupThreshMax) }

// repairSACK is RFC 6675 section 5.
func (c *Conn) repairSACK(now int64, a *acked) {
	rv := &c.recovery
	if a.duplicate {
		rv.dupAcks++
	}
	if rv.phase != phaseOpen && c.sndUna >= rv.point {
		rv.phase = phaseOpen
	}
	if rv.ordersLen > 0 && c.sent.resent > 0 {
		c.findLostAgain(now)
	}
	if a.sacked > 0 || a.dsack && rv.sackedTo > c.sndUna {
		c.findLost()
	}
	if rv.phase != phaseOpen && rv.resentAt != 0 {
		c.findOlder()
	}
	if rv.phase == phaseRecovery && a.octets > 0 && a.resent {
		// A retransmission has arrived and the oldest segment, sent before it, has not (as RFC 6582 section 3.2 step 3):
		// the end of a burst needs this, nothing was sent behind it that could reveal it.
		c.loseOldest()
	}
	if rv.phase == phaseOpen && c.flight() > 0 && (c.sent.lost > 0 || rv.dupAcks >= c.threshold()) {
		c.enterRecovery(now)
	}
}

// threshold is how many records must overtake one for it to be lost. It grows with reordering, but not beyond half of
// what is in flight, lest nothing but a timeout could reveal a loss.
func (c *Conn) threshold() int {
	return min(c.recovery.dupThresh, max(dupThreshMin, int(c.sent.nxt-c.sent.una)/2))
}

// findLost marks what IsLost of RFC 6675 section 4 says: records with threshold SACKed records above them, or more than
// threshold-1 SMSS of SACKed octets. It walks down from the highest SACKed octet until that many are found; what lies
// below lostBelow has been dealt with before, so each record is visited once.
func (c *Conn) findLost() {
	rv := &c.recovery
	thresh := c.threshold()
	i := c.sent.find(rv.sackedTo - 1)
	records, sum := 0, 0
	for {
		r := c.sent.rec(i)
		if r.at < rv.lostBelow {
			return
		}
		if r.flags&recSacked != 0 {
			records++
			sum += r.seqLen()
			if records >= thresh || sum > (thresh-1)*c.emss {
				break
			}
		}
		if i == c.sent.una {
			return
		}
		i--
	}
	below := rv.lostBelow
	rv.lostBelow = c.sent.rec(i).at
	for i != c.sent.una {
		i--
		r := c.sent.rec(i)
		if r.at < below {
			return
		}
		if r.flags&(recSacked|recLost|recResent) == 0 {
			c.lose(r)
		}
	}
}

// findLostAgain marks retransmissions that threshold later transmissions have overtaken. A second loss is a second
// congestion signal (RFC 5681 section 4.3), counted once per round of retransmissions.
func (c *Conn) findLostAgain(now int64) {
	rv := &c.recovery
	thresh := uint8(c.threshold())
	again := false
	for i := c.sent.una; i != c.sent.nxt; i++ {
		r := c.sent.rec(i)
		if r.at >= rv.lostBelow {
			break
		}
		if r.flags&recResent == 0 {
			continue
		}
		for _, order := range rv.orders[:rv.ordersLen] {
			if order > r.order && r.later < dupThreshMax {
				r.later++
			}
		}
		if r.later >= thresh {
			c.stats.LostRetrans++
			again = again || r.order > rv.reducedAt
			c.lose(r)
		}
	}
	if again && rv.phase == phaseRecovery {
		rv.point = c.sndNxt
		rv.reducedAt = rv.order
		rv.undoable = false
		c.reduce(now, min(c.flight(), c.cong.Cwnd)) // flight still counts what is SACKed
	}
}

// findOlder marks first transmissions that are older, by half a round trip, than a retransmission that has arrived. They
// are lost with nothing SACKed above them: the end of a burst, or octets for which the receiver had no room. Beyond
// lostBelow records are in the order they were sent, so each is visited once.
func (c *Conn) findOlder() {
	rv := &c.recovery
	before := rv.resentAt - c.rtt.srtt/2
	for i := c.sent.find(rv.lostBelow); i != c.sent.nxt; i++ {
		r := c.sent.rec(i)
		if r.sentAt >= before {
			return
		}
		if r.flags&(recSacked|recLost|recResent) == 0 {
			c.lose(r)
		}
		rv.lostBelow = r.endAt()
	}
}

// lose marks record r to be sent again.
func (c *Conn) lose(r *record) {
	c.sent.markLost(r)
	c.recovery.resendFrom = min(c.recovery.resendFrom, r.at)
}

// loseOldest marks the record at SND.UNA and lets it go at once, unless it is being dealt with.
func (c *Conn) loseOldest() {
	if c.sent.una == c.sent.nxt {
		return
	}
	r := c.sent.rec(c.sent.una)
	if r.flags&(recSacked|recLost|recResent) == 0 {
		c.lose(r)
	}
	c.recovery.lostBelow = max(c.recovery.lostBelow, r.endAt())
	if r.flags&recLost != 0 {
		c.due |= dueRepair
	}
}

// enterRecovery starts fast retransmit and fast recovery.
func (c *Conn) enterRecovery(now int64) {
	rv := &c.recovery
	rv.phase = phaseRecovery
	rv.point, rv.any = c.sndNxt, true
	rv.reducedAt = rv.order
	rv.undoable, rv.undoFrom, rv.undoLeft, rv.suspect = true, c.sndUna, 0, 0
	c.stats.FastRetransmits++
	c.reduce(now, c.flight()-rv.limited)
	rv.limited = 0
	c.loseOldest()
	c.due |= dueRepair // section 5 step 4.3: the first retransmission does not wait for cwnd
}

// reduce answers congestion with flight octets outstanding.
func (c *Conn) reduce(now int64, flight int) {
	c.control.Reduce(&c.cong, cc.Loss, now, flight, c.emss)
	c.cong.Cwnd = c.cong.Ssthresh
}

// undo takes note of a D-SACK: one of our retransmissions was needless. When all of an episode were, it was reordering,
// and its reduction is taken back.
func (c *Conn) undo() {
	rv := &c.recovery
	if !rv.undoable || rv.undoLeft == 0 {
		return
	}
	if rv.suspect > 0 {
		rv.overtook(rv.suspect)
		rv.suspect = 0
	}
	rv.undoLeft--
	if rv.undoLeft > 0 {
		return
	}
	c.stats.Undone++
	rv.undoable = false
	c.control.Undo(&c.cong)
	if rv.phase != phaseRecovery {
		return
	}
	rv.phase = phaseOpen
	for i := c.sent.una; i != c.sent.nxt; i++ { // findLost judges them anew
		if r := c.sent.rec(i); r.flags&recLost != 0 {
			c.sent.unmark(r)
		}
	}
	rv.lostBelow = c.sndUna
	rv.dupAcks = 0
	c.due &^= dueRepair
}

// repairNewReno is RFC 6582 section 3.2, for peers without SACK.
func (c *Conn) repairNewReno(now int64, a *acked) {
	rv := &c.recovery
	w := &c.cong
	if a.duplicate {
		rv.dupAcks++
		switch {
		case rv.phase == phaseRecovery:
			w.Cwnd += c.emss
		case rv.phase == phaseOpen && rv.dupAcks == dupThreshMin && (!rv.any || c.sndUna > rv.point):
			c.enterRecovery(now)
			w.Cwnd = w.Ssthresh + 3*c.emss
		}
		return
	}
	if a.octets == 0 || rv.phase == phaseOpen {
		return
	}
	if c.sndUna >= rv.point {
		if rv.phase == phaseRecovery {
			w.Cwnd = min(w.Ssthresh, max(c.flight(), c.emss)+c.emss)
		}
		rv.phase = phaseOpen
		return
	}
	if rv.phase == phaseRecovery { // a partial ACK: the next hole
		c.loseOldest()
		w.Cwnd = max(w.Cwnd-a.octets, 0)
		if a.octets >= c.emss {
			w.Cwnd += c.emss
		}
		w.Cwnd = max(w.Cwnd, c.emss)
	}
}

// timedOut is RFC 6298 section 5.4 to 5.7 and RFC 5681 section 3.1: all that is not SACKed counts as lost, and is sent
// again in slow start, the oldest at once.
func (c *Conn) timedOut(now int64) {
	rv := &c.recovery
	c.stats.Timeouts++
	oldest := c.sent.rec(c.sent.una)
	if oldest.flags&recSacked != 0 {
		c.forgetSACK() // RFC 2018 section 8: it was SACKed and yet not acknowledged
	}
	first := rv.phase != phaseLoss || rv.timedOutAt != c.sndUna
	rv.timedOutAt = c.sndUna
	c.control.Timeout(&c.cong, now, c.flight(), c.emss, first)
	c.rtt.backOff()
	rv.phase = phaseLoss
	rv.point, rv.any = c.sndNxt, true // no second reduction for this window: RFC 6675 section 5.1
	rv.dupAcks, rv.limited, rv.undoable = 0, 0, false
	rv.limitedTo = c.sndNxt
	rv.dupThresh = dupThreshMin
	rv.reducedAt = rv.order
	for i := c.sent.una; i != c.sent.nxt; i++ {
		if r := c.sent.rec(i); r.flags&recSacked == 0 {
			c.sent.markLost(r)
		}
	}
	rv.lostBelow = c.sndNxt
	rv.resendFrom = c.sndUna
	c.due |= dueRepair
}
