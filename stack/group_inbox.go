package stack

import (
	"github.com/rnicd/rnicd/mem"
)

// drainCrossings takes in what other members handed over, a ring's worth of each at most.
func (p *Poller) drainCrossings() int {
	if p.cfg.Group == nil {
		return 0
	}
	work := 0
	for _, x := range p.cfg.Group.inboxes[p.cfg.Member] {
		if x != nil {
			work += p.drainCrossing(x)
		}
	}
	p.overheard = false
	p.freeDead()
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
		s := x.ring.Peek(0)
		d := p.pool.Desc(b)
		d.Len, d.Flags, d.CsumStart, d.CsumOffset = s.length, s.flags, s.csumStart, s.csumOffset
		copy(p.pool.Data(b), x.octets(s))
		p.overheard = s.overheard
		x.ring.Release(1)
		work++
		if p.frame(b) {
			p.discard(b)
		}
	}
	return work
}

// crossingsWait says that frames of other members wait for the next Turn.
func (p *Poller) crossingsWait() bool {
	if p.cfg.Group == nil {
		return false
	}
	for _, x := range p.cfg.Group.inboxes[p.cfg.Member] {
		if x != nil && x.ring.Len() > 0 {
			return true
		}
	}
	return false
}
