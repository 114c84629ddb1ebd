package stack

// shutdown resets every connection, tells the Uppers and gives all Bufs back.
func (p *Poller) shutdown() {
	for l := p.ports.any(); l != nil; l = p.ports.any() {
		p.unlisten(l)
	}
	p.stopped = true // from here Dial and Listen fail
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.phase != phaseFree {
			c.abort(whyStopped)
		}
	}
	p.addrWaiters.tell()
	for i := range p.slab.conns {
		c := &p.slab.conns[i]
		if c.phase == phaseFree {
			continue
		}
		p.serve(c)
		if c.phase != phaseFree { // its RST found no room: it is not waited for
			p.finish(c)
		}
	}
	p.host.LeaveAll(p.now)
	p.tx.flush(p.now)
	p.leavers.tellLeft(p.now, true)
	p.abandonFrames()
	p.control.end(func() { p.Snapshot(&p.last) })
	close(p.done)
}

// abandonFrames drops what was never sent, at the end of the Poller.
func (p *Poller) abandonFrames() {
	p.tx.abandon()
	p.abandonNeighbours()
	p.dead.free()
}
