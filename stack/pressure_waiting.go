package stack

// Connections that could send and found no Buf to spare, or, with nothing in flight, no tcp.Memory, wait here, longest
// first, for what others give back: nothing else would make the Poller ask them again. A list of their own, because those
// that wait may be very many, and a Turn must not walk over all of them to find nothing. Connections that have something
// in flight and cannot have more need no list, their ACKs bring them back.

// feedMax bounds how many are asked again in one Turn.
const feedMax = 64

// starve lists c, once, where it stands now: those that leave more Bufs to others wait apart, or they would hold up the rest.
func (p *Poller) starve(c *Conn) {
	stranger := p.floor(c) > 0
	if c.marks&markStarved != 0 {
		if stranger == (c.marks&markStranger != 0) {
			return
		}
		p.leaveStarved(c)
	}
	p.leaveSilent(c)
	c.marks |= markStarved
	if stranger {
		c.marks |= markStranger
		p.strangers.pushBack(p.slab.conns, c.index)
		return
	}
	p.starved.pushBack(p.slab.conns, c.index)
}

func (p *Poller) leaveStarved(c *Conn) {
	switch {
	case c.marks&markStarved == 0:
		return
	case c.marks&markStranger != 0:
		p.strangers.remove(p.slab.conns, c.index)
	default:
		p.starved.remove(p.slab.conns, c.index)
	}
	c.marks &^= markStarved | markStranger
}

// feed has as many served as there is memory for.
func (p *Poller) feed() {
	if p.starved.n+p.strangers.n == 0 {
		return
	}
	starved, strangers := p.feedable()
	p.feedFrom(&p.starved, starved)
	p.feedFrom(&p.strangers, strangers)
	if p.starved.n+p.strangers.n > 0 {
		p.stall.want(noConn)
	}
}

// feedable is how many of those that wait in either list could be served now.
func (p *Poller) feedable() (starved, strangers int) {
	bufs, runs := p.pool.Available()-p.tx.reserve+1, p.memory.RunsFree()
	starved = max(min(feedMax, p.starved.n, runs, bufs), 0)
	strangers = max(min(feedMax, p.strangers.n, runs-starved, bufs-starved-p.tx.proven), 0)
	return starved, strangers
}

func (p *Poller) feedFrom(l *list, n int) {
	for ; n > 0 && l.first != noConn; n-- {
		c := &p.slab.conns[l.first]
		p.leaveStarved(c)
		p.touch(c)
	}
}
