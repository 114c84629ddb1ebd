package stack

import (
	"github.com/rnicd/rnicd/mem"
)

// shutdown resets every connection, tells the Uppers and gives all Bufs back.
func (p *Poller) shutdown() {
	for port, l := range p.listeners {
		for ; l != nil; l = p.listeners[port] {
			p.unlisten(l)
		}
	}
	p.stopped = true // from here Dial and Listen fail
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.phase != phaseFree {
			p.abort(c, whyStopped)
		}
	}
	p.tellWaiters()
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
	p.flush()
	p.tellLeft(true)
	p.abandonFrames()
	p.lastOrders()
	close(p.done)
}

// abandonFrames drops what was never sent, at the end of the Poller.
func (p *Poller) abandonFrames() {
	for _, b := range p.tx.frames[:p.tx.n] {
		p.n.Own[DropStopped]++
		p.unqueue(b)
	}
	p.tx.n, p.tx.ahead, p.tx.refused = 0, 0, 0
	p.abandonNeighbours()
	if p.tx.spare != mem.NoBuf {
		p.discard(p.takeSpare())
	}
	p.freeDead()
}

// lastOrders runs what was submitted before the end, which finds a stopped Poller, and keeps the
// counters. ended is set before the ring is looked at: a Submit that does not see it pushed before
// that.
func (p *Poller) lastOrders() {
	p.late.Lock()
	defer p.late.Unlock()
	p.ended.Store(true)
	p.drainAll()
	p.Snapshot(&p.last)
}
