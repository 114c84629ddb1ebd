package stack

// Submit runs fn on the Poller's goroutine at the start of a Turn. Any goroutine; never blocks; bounded: ErrBusy when
// the ring is full, ErrStopped after Stop. A function that was taken in the very moment the Poller stops may not be
// run: who waits for it waits for Done, too.
func (p *Poller) Submit(fn func()) error {
	if p.stopping.Load() {
		return ErrStopped
	}
	if !p.control.Push(fn) {
		return ErrBusy
	}
	return nil
}

// drainControl runs what was submitted; at most one ring's worth, so that functions that submit cannot hold the Turn.
func (p *Poller) drainControl() int {
	work := 0
	for range controlRingEntries {
		fn, ok := p.control.Pop()
		if !ok {
			break
		}
		work++
		fn()
	}
	p.n.Controls += uint64(work)
	return work
}

// drainBells hears the doorbells rung since the last Turn.
func (p *Poller) drainBells() int {
	work := 0
	for range len(p.slab.conns) {
		i, ok := p.bells.Pop()
		if !ok {
			break
		}
		work++
		c := &p.slab.conns[i]
		// Silence the bell before Woken looks: what is posted after Woken looked rings again.
		c.bell.Store(false)
		if c.phase == phaseOpening {
			c.marks |= markWoken
		}
		if c.phase != phaseOpen || c.upper == nil || c.marks&markAbort != 0 {
			continue
		}
		p.n.Wakes++
		p.touch(c)
		c.upper.Woken(c)
	}
	return work
}
