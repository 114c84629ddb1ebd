package stack

// Connections that could send and found no Buf to spare, or, with nothing in flight, no tcp.Memory, wait here, longest
// first, for what others give back: nothing else would make the Poller ask them again. A list of their own, because those
// that wait may be very many, and a Turn must not walk over all of them to find nothing. Connections that have something
// in flight and cannot have more tcp.Memory need no list, their ACKs bring them back.

// feedMax bounds how many are asked again in one Turn.
const feedMax = 64

// feedable is how many of those that wait could be served now.
func (p *Poller) feedable() int {
	return min(feedMax, p.memory.RunsFree(), p.pool.Available()-p.tx.reserve+1)
}

// starve lists c, once.
func (p *Poller) starve(c *Conn) {
	if c.marks&markStarved == 0 {
		c.marks |= markStarved
		p.starved.pushBack(p.slab.conns, c.index)
	}
}

func (p *Poller) leaveStarved(c *Conn) {
	if c.marks&markStarved != 0 {
		c.marks &^= markStarved
		p.starved.remove(p.slab.conns, c.index)
	}
}

// feed has as many served as there is memory for. Where there is none for anybody, relieve finds some.
func (p *Poller) feed() {
	if p.starved.first == noConn {
		return
	}
	n := p.feedable()
	if n <= 0 {
		p.relieve()
		return
	}
	for ; n > 0 && p.starved.first != noConn; n-- {
		c := &p.slab.conns[p.starved.first]
		p.leaveStarved(c)
		p.touch(c)
	}
}
