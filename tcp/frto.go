package tcp

// frto is F-RTO (RFC 5682 section 3.1, the variant with SACK): was a timeout spurious? Two ACKs
// tell, if new segments and not old ones are sent between them. Where there are timestamps Eifel
// tells by one ACK, and F-RTO is not asked.
type frto struct {
	step frtoStep
	sent uint64 // SND.NXT when step 3 began: new segments were sent if it has moved
}

type frtoStep uint8

const (
	frtoOff  frtoStep = iota
	frtoTwo           // the oldest segment was sent again; its ACK is awaited
	frtoNext          // it has come; new segments go, and the next ACK decides
)

// start is step 1. first: no timeout is being recovered from, else its segments are sent again as
// they are (RecoveryPoint is not below SND.UNA).
func (f *frto) start(c *Conn, first bool) {
	f.step = frtoOff
	if first && c.useSACK && !c.useTS {
		f.step = frtoTwo
	}
}

// frtoAcked is steps 2 and 3 on an ACK after the timeout, before it is looked at for losses.
func (c *Conn) frtoAcked(now int64, a *acked) {
	rv := &c.recovery
	switch {
	case rv.frto.step == frtoTwo && a.octets == 0: // the scoreboard changes, the step does not
	case rv.frto.step == frtoTwo:
		rv.frto = frto{frtoNext, c.sndNxt}
		rv.hold = holdLost
		c.due &^= dueRepair
	case rv.frto.step == frtoNext && a.frtoOld && !a.frtoNew:
		c.takeBack(now) // a segment that was not sent again has arrived: step 3 (b)
	default:
		// step 3 (a): new segments that were discarded leave room for one that is lost
		if rv.frto.step == frtoNext {
			c.cong.Cwnd = max(c.cong.Cwnd, 3*c.EMSS())
		}
		rv.frto.step = frtoOff
		rv.hold = holdNothing
	}
}

// frtoDry ends F-RTO when there is nothing new to ask with, or Nagle or the peer's window keep it:
// what waits for cwnd or for pacing will go without our doing.
func (c *Conn) frtoDry(now int64) bool {
	rv := &c.recovery
	if rv.hold != holdLost || rv.frto.sent != c.sndNxt {
		return false
	}
	if c.sent.unsent() && (!c.cwndAdmits(int(c.sent.rec(c.sent.nxt).len)) || !c.paced(now)) {
		return false
	}
	rv.frto.step = frtoOff
	rv.hold = holdNothing
	return true
}
