package stack

// Connections that could send and found no Buf to spare, or, with nothing in flight, no tcp.Memory,
// wait here, longest first, for what others give back: nothing else would make the Poller ask them
// again. A list of their own, because those that wait may be very many, and a Turn must not walk
// over all of them to find nothing. Connections that have something in flight and cannot have more
// need no list, their ACKs bring them back.

// retriesMax bounds how many are asked again in one Turn.
const retriesMax = 64

// awaitBufs puts c on the list that it belongs to now, once. Connections of unproven peers leave
// more Bufs to others, so they wait on a list of their own: on one list they would hold up the
// rest.
func (p *Poller) awaitBufs(c *Conn) {
	unproven := p.floor(c) > 0
	if c.marks&markWaiting != 0 {
		if unproven == (c.marks&markUnproven != 0) {
			return
		}
		p.stopWaiting(c)
	}
	p.leaveSilent(c)
	c.marks |= markWaiting
	if unproven {
		c.marks |= markUnproven
		p.unproven.pushBack(p.slab.conns, c.index)
		return
	}
	p.waiting.pushBack(p.slab.conns, c.index)
}

func (p *Poller) stopWaiting(c *Conn) {
	switch {
	case c.marks&markWaiting == 0:
		return
	case c.marks&markUnproven != 0:
		p.unproven.remove(p.slab.conns, c.index)
	default:
		p.waiting.remove(p.slab.conns, c.index)
	}
	c.marks &^= markWaiting | markUnproven
}

// retryWaiting has as many connections served as there is memory for.
func (p *Poller) retryWaiting() {
	waiting, unproven := p.retriable()
	p.retryFrom(&p.waiting, waiting)
	p.retryFrom(&p.unproven, unproven)
	switch {
	case p.waiting.n+p.unproven.n == 0:
	case p.memory.RunsFree() == 0 && p.spareBufs() > 0:
		p.pressure.needRecords()
	default:
		p.pressure.need(noConn)
	}
}

// retriable is how many connections of either list could be served now. Guests are taken from both.
func (p *Poller) retriable() (waiting, unproven int) {
	bufs, runs := p.spareBufs()+1, p.memory.RunsFree()
	guests := max(min(p.loans.guestsMax-p.loans.guests, p.lendable()), 0)
	ofUnproven := (guests + int(p.n.Turns&1)) / 2
	waiting = max(min(retriesMax, p.waiting.n, runs, max(bufs, guests-ofUnproven)), 0)
	forUnproven := max(bufs-waiting-p.budget.Proven, ofUnproven)
	unproven = max(min(retriesMax, p.unproven.n, runs-waiting, forUnproven), 0)
	return waiting, unproven
}

func (p *Poller) retryFrom(l *list, n int) {
	for ; n > 0 && l.first != noConn; n-- {
		c := &p.slab.conns[l.first]
		p.stopWaiting(c)
		p.touch(c)
	}
}
