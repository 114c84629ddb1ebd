package stack

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// sender lets one connection after another send: what its tcp.Conn has to repeat or to answer, and
// segments that its Upper fills. Whose turn it is, and for how many octets, the schedule says; how
// many Bufs a connection may take, the pressure.
type sender struct {
	cfg      *Config
	pool     *mem.Pool
	tx       *transmitter
	pressure *pressure

	// of the connection being served:
	allow   int // octets that it may still send
	gotBack int // Bufs that it may take in place of those it has given back
	ask     int // segments that it is asked for next
	pulling pulling
}

func newSender(p *Poller) sender {
	return sender{cfg: &p.cfg, pool: p.pool, tx: &p.tx, pressure: &p.pressure}
}

// serviceEnd says why a connection's service has ended.
type serviceEnd uint8

const (
	sentAll      serviceEnd = iota // it has no more, or none that may go now
	usedCredit                     // it has sent as many octets as it was allowed
	usedSegments                   // or as many segments
	heldUp                         // the device takes no more, or there is no Buf
)

// transmit pulls and sends while there is room, up to allow octets and most segments, or one
// segment more; s.allow is what is left of allow. waits: c is served again when there are Bufs
// to spare.
func (s *sender) transmit(now int64, c *Conn, allow, most int) (end serviceEnd, waits bool) {
	s.gotBack = s.pressure.takeBack(c)
	if s.gotBack > 0 && s.pool.Available() < 2*s.pressure.budget.Reserve {
		s.tx.dead.free()
	}
	switch end, waits = s.transmitAll(now, c, allow, most); {
	case end != sentAll:
		s.pressure.gave(c, s.gotBack) // for its next turn
	case !waits && c.tcp.Held() == 0:
		s.pressure.leaveGuests(c)
	}
	return end, waits
}

func (s *sender) transmitAll(now int64, c *Conn, allow, most int) (end serviceEnd, waits bool) {
	s.allow, s.ask = allow, 1
	var pieces []tcp.Piece // queued, and not yet sent
	for dry := false; most > 0; {
		if s.allow <= 0 {
			return usedCredit, false
		}
		if !s.tx.room(now) {
			return heldUp, false
		}
		if !s.tx.haveSpare() {
			if s.tx.abortUnsaid(now, c) {
				return sentAll, false
			}
			return heldUp, false
		}
		waits = false
		// else the Upper has just said that it has no more; what is posted meanwhile rings
		if len(pieces) == 0 && !dry {
			pieces, waits, dry = s.pull(now, c, s.atOnce(c, most))
			if !s.tx.haveSpare() {
				return heldUp, false
			}
		}
		t := &s.tx.segment
		if !c.tcp.Next(now, max(1, len(pieces)), t) {
			return sentAll, waits
		}
		s.allow -= t.Len + frameCost
		s.tx.emit(now, c, t)
		most--
		if len(pieces) > 0 && t.Handle == pieces[0].Handle && !t.Retransmit &&
			t.Off+t.Len == int(pieces[0].Len) {
			s.allow -= t.More * (t.Len + frameCost)
			s.tx.emitMore(now, c, t, pieces[1:1+t.More])
			most -= t.More
			pieces = pieces[1+t.More:]
		}
	}
	return usedSegments, false
}
