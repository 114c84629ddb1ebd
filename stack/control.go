package stack

// Submit runs fn on the Poller's goroutine at the start of a Turn. Any goroutine; bounded: ErrBusy when the ring is full,
// ErrStopped after Stop. What was taken is run, always: a function that comes in the very moment the Poller ends runs
// on the caller's goroutine, one at a time, and finds a Poller that has stopped. Only then does Submit take a lock.
func (p *Poller) Submit(fn func()) error {
	if p.stopping.Load() {
		return ErrStopped
	}
	if !p.control.Push(fn) {
		return ErrBusy
	}
	if p.ended.Load() { // fn came behind the last look at the ring, or is being run now
		p.drainLast()
	}
	return nil
}

// lastOrders runs what was submitted before the end, which finds a stopped Poller, and keeps the counters. ended is set
// before the ring is looked at: a Submit that does not see it pushed before that.
func (p *Poller) lastOrders() {
	p.late.Lock()
	defer p.late.Unlock()
	p.ended.Store(true)
	p.drainAll()
	p.Snapshot(&p.last)
}

// drainLast runs, on a caller's goroutine, what came behind lastOrders.
func (p *Poller) drainLast() {
	p.late.Lock()
	defer p.late.Unlock()
	p.drainAll()
}

func (p *Poller) drainAll() {
	for p.drainControl() > 0 {
	}
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
	for i := p.bells.hear(p.slab.conns); i != 0; {
		work++
		c := &p.slab.conns[i-1]
		i = c.bellNext // before the bell may ring again
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
