package tcp

import "github.com/rnicd/rnicd/internal/flight"

// RACK (RFC 8985): a segment is lost when one that was sent after it has arrived, and what
// reordering may take has passed since. Time decides, not a count of segments, so it finds lost
// retransmissions and lost ends of a burst the same way. The variables are the RFC's.

// rack is the state of section 5.3. What it says of segments stands in their records.
type rack struct {
	xmitTs int64  // of RACK.segment, the most recently sent segment that has arrived
	endSeq uint64 // its end; 0: none has arrived yet
	reoAt  int64  // when the reordering timer fires, or never

	dsackRound    uint64 // once hasDsackRound: SND.NXT when reoWndMult grew
	hasDsackRound bool
}

// reordering is what of section 5.3 outlives a flight.
type reordering struct {
	rtt     int64 // RACK.rtt: round trip of RACK.segment
	mult    int16 // RACK.reo_wnd_mult
	persist int8  // RACK.reo_wnd_persist
	seen    bool  // RACK.reordering_seen
}

const (
	dupThresh         = 3
	reoWndPersistFull = 16   // loss recoveries that a widened window survives
	reoWndMultMax     = 4096 // SRTT bounds the window long before
)

// sentAfter is RACK_sent_after: bursts share a time, the sequence decides between them.
func sentAfter(t1 int64, seq1 uint64, t2 int64, seq2 uint64) bool {
	return t1 > t2 || t1 == t2 && seq1 > seq2
}

// delivered takes note that record i, which was not SACKed, has arrived (steps 2 and 3). original
// says that it surely was a first transmission that did: it never was sent again, or the peer's
// timestamp echo tells (beyond the letter of step 3).
func (c *Conn) delivered(now int64, i uint32, original bool, a *acked) {
	r := c.sent.rec(i)
	end := r.endAt()
	a.delivered += r.seqLen()
	if r.flags&recProbe != 0 {
		c.probeArrived(r)
	}
	if original && end < a.sackedTo {
		c.reo.seen = true
	}
	if r.flags&recEver == 0 && r.len > baseMSS {
		c.largeArrived(r, i != c.sent.una)
	}
	if r.flags&recEver != 0 {
		if original || now-r.sentAt < c.rtt.minRTT() {
			return // an earlier transmission has arrived: it says nothing about what was sent since
		}
	} else if c.recovery.frto.step != 0 {
		a.frtoOld = a.frtoOld || end <= c.point
		a.frtoNew = a.frtoNew || end > c.point
	}
	if a.rackEnd == 0 || sentAfter(r.sentAt, end, a.rackAt, a.rackEnd) {
		a.rackAt, a.rackEnd = r.sentAt, end
	}
}

// rackUpdate is the end of step 2: of what one ACK delivers, the most recently sent counts.
func (c *Conn) rackUpdate(now int64, a *acked) {
	if a.rackEnd == 0 {
		return
	}
	c.reo.rtt = now - a.rackAt
	k := &c.recovery.rack
	if k.endSeq == 0 || sentAfter(a.rackAt, a.rackEnd, k.xmitTs, k.endSeq) {
		k.xmitTs, k.endSeq = a.rackAt, a.rackEnd
	}
}

// adapt is step 4's adaptation: wider with every round trip that brings a D-SACK, back to the
// beginning after 16 loss recoveries without.
func (c *Conn) adapt(dsack, exiting bool) {
	k := &c.recovery.rack
	if k.hasDsackRound && c.sndUna >= k.dsackRound {
		k.hasDsackRound = false
	}
	switch {
	case !k.hasDsackRound && dsack:
		if c.sndUna < c.sndNxt { // else the round trip is over
			k.hasDsackRound, k.dsackRound = true, c.sndNxt
		}
		c.reo.mult = min(c.reo.mult+1, reoWndMultMax)
		c.reo.persist = reoWndPersistFull
	case exiting:
		c.reo.persist--
		if c.reo.persist <= 0 {
			c.reo.persist, c.reo.mult = 0, 1
		}
	}
}

// reoWnd is RACK.reo_wnd (step 4).
func (c *Conn) reoWnd() int64 {
	if !c.reo.seen && (c.recovery.phase != phaseOpen || c.sent.sackedRecs >= dupThresh) {
		return 0
	}
	return min(int64(c.reo.mult)*c.rtt.minRTT()/4, c.rtt.srtt)
}

// detectLost is step 5: RACK_detect_loss. It marks what is lost, sets when to look again, and says
// what it found. Only records sent before RACK.segment are looked at, oldest first, until one has
// time left: so each record is visited once, except for the one at which a call stops.
func (c *Conn) detectLost(now int64) (lost, again bool) {
	k := &c.recovery.rack
	k.reoAt = never
	if k.endSeq == 0 {
		return false, false
	}
	wait := c.reo.rtt + c.reoWnd()
	for {
		i := c.sent.oldestUnjudged()
		if i == c.sent.nxt {
			break
		}
		r := c.sent.rec(i)
		if !sentAfter(k.xmitTs, k.endSeq, r.sentAt, r.endAt()) {
			break
		}
		if r.sentAt+wait > now {
			k.reoAt = k.xmitTs + wait // by then all of them are
			break
		}
		if r.flags&recProbe != 0 {
			c.probeFailed(r)
		} else {
			lost = true
		}
		c.lose(i)
	}
	i := c.sent.resentFirst
	for n := c.sent.resent; n > 0; n-- {
		r := c.sent.rec(i)
		next := r.next
		if r.sentAt > k.xmitTs {
			break
		}
		if sentAfter(k.xmitTs, k.endSeq, r.sentAt, r.endAt()) {
			if r.sentAt+wait > now {
				k.reoAt = k.xmitTs + wait
				break
			}
			c.stats.lostRetrans.one()
			c.Record(flight.LostRepair, r.at, 0)
			again = again || r.sentAt >= c.recovery.reducedAt
			c.lose(i)
			lost = true
		}
		i = next
	}
	return lost, again
}

// loseAtTimeout is RACK_mark_losses_on_RTO (section 6.3): the first segment, and of the others
// those whose time is up.
func (c *Conn) loseAtTimeout(now int64) {
	k := &c.recovery.rack
	k.reoAt = never
	wait := c.reo.rtt + c.reoWnd()
	for i := c.sent.una; i != c.sent.nxt; i++ {
		r := c.sent.rec(i)
		if r.flags&(recSacked|recLost) == 0 && (i == c.sent.una || !c.useSACK || r.sentAt+wait <= now) {
			if r.flags&recProbe != 0 {
				c.probeFailed(r)
			}
			c.lose(i)
		}
	}
}

// reorderDue handles the reordering timer.
func (c *Conn) reorderDue(now int64) {
	if lost, again := c.detectLost(now); lost {
		c.Record(flight.RackTimer, c.sndUna, uint64(c.flight()))
		c.foundLost(now, again)
	}
	c.armLoss(now)
}
