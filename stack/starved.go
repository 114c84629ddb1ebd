package stack

// Connections with nothing in flight that found no tcp.Memory wait here, longest first, for what others give back: with
// nothing in flight nothing would ever come that makes the Poller ask them again. Those that have something in flight
// need no list, their ACKs bring them back.

// feedMax bounds how many are asked again in one Turn.
const feedMax = 64

// starve lists c, once.
func (p *Poller) starve(c *Conn) {
	if c.marks&markStarved == 0 {
		c.marks |= markStarved
		p.starved.pushBack(p.slab.conns, c.index)
		p.n.MemoryWaits++
	}
}

func (p *Poller) leaveStarved(c *Conn) {
	if c.marks&markStarved != 0 {
		c.marks &^= markStarved
		p.starved.remove(p.slab.conns, c.index)
	}
}

// feed has as many served as there is memory for.
func (p *Poller) feed() {
	for n := min(feedMax, p.memory.RunsFree()); n > 0 && p.starved.first != noConn; n-- {
		c := &p.slab.conns[p.starved.first]
		p.leaveStarved(c)
		p.touch(c)
	}
}
