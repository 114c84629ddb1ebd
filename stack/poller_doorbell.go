package stack

import (
	"sync/atomic"
)

// Wake leads to Upper.Woken, then Pull, on the Poller's goroutine. Any goroutine; never blocks; any
// number of calls before Woken lead to one Woken. What the caller wrote before Wake is seen by
// Woken. On a closed or recycled Conn it is harmless.
func (c *Conn) Wake() {
	if c.rung.Load() || c.rung.Swap(true) {
		return
	}
	c.p.doorbells.ring(c)
	c.p.rouser.Rouse()
}

// doorbells are the connections whose doorbell rang since the Poller last looked. Any goroutine
// rings; the Poller looks.
//
// They are a stack linked through the connections (R. K. Treiber, 1986). It is taken as a whole, so
// there is no ABA problem. A connection stands in it at most once: Conn.rung says whether it does.
// It costs eight octets a connection and cannot be full.
type doorbells struct {
	_    [64]byte
	last atomic.Uint32 // index+1 of the last that rang; 0: none
	_    [64]byte
}

// ring adds c, whose rung the caller has just set.
func (b *doorbells) ring(c *Conn) {
	for {
		last := b.last.Load()
		c.rungNext = last
		if b.last.CompareAndSwap(last, uint32(c.index)+1) {
			return
		}
	}
}

// drainDoorbells serves the doorbells rung since the last Turn.
func (p *Poller) drainDoorbells() int {
	work := 0
	for i := p.doorbells.takeAll(p.slab.conns); i != 0; {
		work++
		c := &p.slab.conns[i-1]
		i = c.rungNext // before it may ring again
		// Cleared before Woken looks: what is posted after Woken looked rings again.
		c.rung.Store(false)
		if c.phase == phaseOpening {
			c.marks |= markWoken
		}
		if c.phase != phaseOpen || c.upper == nil || c.marks&markAbort != 0 {
			continue
		}
		p.n.Wakes++
		p.active.add(c)
		c.upper.Woken()
	}
	return work
}

// rang says that takeAll would take some.
func (b *doorbells) rang() bool { return b.last.Load() != 0 }

// takeAll takes all that rang, the first to ring first: index+1, continued by rungNext.
func (b *doorbells) takeAll(conns []Conn) uint32 {
	if b.last.Load() == 0 {
		return 0
	}
	first := uint32(0)
	for i := b.last.Swap(0); i != 0; {
		c := &conns[i-1]
		i, c.rungNext, first = c.rungNext, first, i
	}
	return first
}
