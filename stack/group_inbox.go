package stack

import (
	"github.com/rnicd/rnicd/mem"
)

// drainCrossings takes in what other members handed over, a ring's worth of each at most.
func (p *Poller) drainCrossings() int {
	work := 0
	for _, x := range p.member.inbox() {
		if x != nil {
			work += p.drainCrossing(x)
		}
	}
	p.tx.mute = false
	p.dead.free()
	return work
}

// drainCrossing takes in what is in one ring; without a Buf the rest waits there.
func (p *Poller) drainCrossing(x *crossing) (work int) {
	for n := x.ring.Len(); n > 0; n-- {
		b := p.pool.Alloc()
		if b == mem.NoBuf {
			p.n.Own[DropNoBuf]++
			break
		}
		p.tx.mute = p.member.take(x, b)
		work++
		p.frame(b)
	}
	return work
}
