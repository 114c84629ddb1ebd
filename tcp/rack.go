package tcp

// RACK (RFC 8985): a segment is lost when one that was sent after it has arrived, and what reordering may take has passed
// since. Time decides, not a count of segments, so it finds lost retransmissions and lost ends of a burst the same way.
// The variables are the RFC's.

// rack is the state of section 5.3. What it says of segments stands in their records.
type rack struct {
	xmitTs int64  // of RACK.segment, the most recently sent segment that has arrived
	endSeq uint64 // its end; 0: none has arrived yet
	rtt    int64  // its round trip
	reoAt  int64  // when the reordering timer fires, or never

	dsackRound    uint64 // once hasDsackRound: SND.NXT when reoWndMult grew
	reoWndMult    int32
	reoWndPersist int32
	reorderSeen   bool
	hasDsackRound bool
}

const (
	dupThresh         = 3
	reoWndPersistFull = 16   // loss recoveries that a widened window survives
	reoWndMultMax     = 4096 // SRTT bounds the window long before
)

func (k *rack) reset() { *k = rack{reoWndMult: 1, reoAt: never} }

// sentAfter is RACK_sent_after: bursts share a time, the sequence decides between them.
func sentAfter(t1 int64, seq1 uint64, t2 int64, seq2 uint64) bool {
	return t1 > t2 || t1 == t2 && seq1 > seq2
}

// delivered takes note that record i, which was not SACKed, has arrived (steps 2 and 3). original says that it surely was
// a first transmission that did: it never was sent again, or the peer's timestamp echo tells (beyond the letter of step 3).
func (c *Conn) delivered(now int64, i uint32, original bool, a *acked) {
	r := c.sent.rec(i)
	end := r.endAt()
	a.delivered += r.seqLen()
	if original && end < a.sackedTo {
		c.recovery.rack.reorderSeen = true
	}
	if r.flags&recEver != 0 {
		if original || now-r.sentAt < c.rtt.minRTT() {
			return // an earlier transmission has arrived: it says nothing about what was sent since
		}
	} else if c.recovery.frto.step != 0 {
		a.frtoOld = a.frtoOld || end <= c.recovery.point
		a.frtoNew = a.frtoNew || end > c.recovery.point
	}
	if a.rackEnd == 0 || sentAfter(r.sentAt, end, a.rackAt, a.rackEnd) {
		a.rackAt, a.rackEnd = r.sentAt, end
	}
}

// update is the end of step 2: of what one ACK delivers, the most recently sent counts.
func (k *rack) update(now int64, a *acked) {
	if a.rackEnd == 0 {
		return
	}
	k.rtt = now - a.rackAt
	if k.endSeq == 0 || sentAfter(a.rackAt, a.rackEnd, k.xmitTs, k.endSeq) {
		k.xmitTs, k.endSeq = a.rackAt, a.rackEnd
	}
}

// adapt is step 4's adaptation: wider with every round trip that brings a D-SACK, back to the beginning after 16 loss
// recoveries without.
func (k *rack) adapt(c *Conn, dsack, exiting bool) {
	if k.hasDsackRound && c.sndUna >= k.dsackRound {
		k.hasDsackRound = false
	}
	switch {
	case !k.hasDsackRound && dsack:
		k.hasDsackRound, k.dsackRound = true, c.sndNxt
		k.reoWndMult = min(k.reoWndMult+1, reoWndMultMax)
		k.reoWndPersist = reoWndPersistFull
	case exiting:
		k.reoWndPersist--
		if k.reoWndPersist <= 0 {
			k.reoWndPersist, k.reoWndMult = 0, 1
		}
	}
}

// reoWnd is RACK.reo_wnd (step 4).
func (c *Conn) reoWnd() int64 {
	k := &c.recovery.rack
	if !k.reorderSeen && (c.recovery.phase != phaseOpen || c.sent.sackedRecs >= dupThresh) {
		return 0
	}
	return min(int64(k.reoWndMult)*c.rtt.minRTT()/4, c.rtt.srtt)
}

// detectLost is step 5: RACK_detect_loss. It marks what is lost, sets when to look again, and says what it found.
// Only records sent before RACK.segment are looked at, oldest first, until one has time left: so each record is visited
// once, and one per call for nothing.
func (c *Conn) detectLost(now int64) (lost, again bool) {
	k := &c.recovery.rack
	k.reoAt = never
	if k.endSeq == 0 {
		return false, false
	}
	wait := k.rtt + c.reoWnd()
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
		c.lose(i)
		lost = true
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
			c.stats.LostRetrans++
			again = again || r.sentAt >= c.recovery.reducedAt
			c.lose(i)
			lost = true
		}
		i = next
	}
	return lost, again
}

// loseAtTimeout is RACK_mark_losses_on_RTO (section 6.3): the first segment, and of the others those whose time is up.
func (c *Conn) loseAtTimeout(now int64) {
	k := &c.recovery.rack
	k.reoAt = never
	wait := k.rtt + c.reoWnd()
	for i := c.sent.una; i != c.sent.nxt; i++ {
		r := c.sent.rec(i)
		if r.flags&(recSacked|recLost) == 0 && (i == c.sent.una || !c.useSACK || r.sentAt+wait <= now) {
			c.lose(i)
		}
	}
}

// reorderDue is the reordering timer.
func (c *Conn) reorderDue(now int64) {
	lost, again := c.detectLost(now)
	c.foundLost(now, lost, again, false)
	c.armLoss(now)
}
