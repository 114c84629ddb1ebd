package tcp

import (
	"math"

	"github.com/rnicd/rnicd/internal/flight"
)

// A reduction that answered no congestion is taken back: the segments were late, not lost. Two
// things tell.
//
//   - Eifel (RFC 3522): the ACK of what was sent again echoes a timestamp from before it was.
//     Fast recovery and timeouts.
//   - D-SACK (RFC 3708): the peer reports every retransmission of the episode as a duplicate.
//
// F-RTO (frto.go) tells it of timeouts where there are no timestamps. The answer is RFC 4015's: the
// window is as it was, and sending goes on after what was sent.

// undo is what must be known of an episode for that.
type undo struct {
	echo     echoState
	possible bool
	echoTS   uint32 // RetransmitTS: of the first retransmission
	left     int32  // retransmissions not yet reported as duplicates
	from, to uint64 // all of them lie between
}

type echoState uint8

const (
	echoNone    echoState = iota
	echoArmed             // the next retransmission is the one to compare with
	echoAwaited           // the next ACK of new octets tells
)

func (u *undo) start() { *u = undo{possible: true, echo: echoArmed, from: math.MaxUint64} }

// resentOne takes note of the retransmission of r.
func (c *Conn) resentOne(now int64, r *record) {
	u := &c.undo
	if !u.possible {
		return
	}
	u.left++
	u.from, u.to = min(u.from, r.at), max(u.to, r.endAt())
	if u.echo == echoArmed {
		u.echo = echoNone
		if c.useTS && r == c.sent.rec(c.sent.una) { // else the next ACK echoes what fills another hole
			u.echo, u.echoTS = echoAwaited, c.tsNow(now)
		}
	}
}

// echoTells is RFC 3522 section 3.2, steps 4 and 5.
func (c *Conn) echoTells(now int64, a *acked) {
	u := &c.undo
	u.echo = echoNone
	if u.possible && a.hasEcho && int32(a.echoTS-u.echoTS) < 0 {
		c.takeBack(now)
	}
}

// needless takes note of a D-SACK that ends at end: if it is of one of our retransmissions and not
// of a copy that the network made (RFC 3708 section 3), that one was not needed.
func (c *Conn) needless(now int64, end uint64) {
	u := &c.undo
	if !u.possible || u.left == 0 || end <= u.from || end > u.to {
		return
	}
	u.left--
	if u.left == 0 {
		c.takeBack(now)
	}
}

// takeBack undoes the episode: what is marked lost is in flight as before.
func (c *Conn) takeBack(now int64) {
	rv := &c.recovery
	c.undo = undo{}
	c.stats.undone.one()
	c.Record(flight.Spurious, c.point, 0)
	c.mem.totals.Undone++
	if rv.phase == phaseLoss {
		c.stats.spuriousTimeouts.one()
	}
	(*c.control).Undo(&c.cong)
	if rv.phase == phaseOpen {
		return
	}
	rv.phase = phaseOpen
	rv.hold = holdNothing
	rv.frto.step = frtoOff
	c.mem.sackSteps += uint64(c.sent.found())
	c.sent.unjudged = c.sent.una
	rv.dupAcks = 0
	c.due &^= dueRepair
}
