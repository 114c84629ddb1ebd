package stack

import (
	"context"
)

// Submit runs fn on the Poller's goroutine at the start of a Turn. Any goroutine. It does not wait.
// Errors: ErrBusy when the ring is full, ErrStopped after Stop; with either, fn is not run.
//
// Without an error fn is always run. If it comes at the moment in which the Poller ends, it is run
// on the caller's goroutine, one function at a time, and finds a Poller that has stopped. Only then
// does Submit take a lock.
func (p *Poller) Submit(fn func()) error {
	if p.stopping.Load() {
		return ErrStopped
	}
	if !p.control.Push(fn) {
		return ErrBusy
	}
	p.rouser.rouse()
	if p.ended.Load() { // fn came after the last look at the ring, or is being run now
		p.drainLast()
	}
	return nil
}

// Counters asks the Poller for a snapshot and waits for it, at most until ctx ends. Any goroutine
// but the Poller's. After the Poller has stopped it returns the last ones.
func (p *Poller) Counters(ctx context.Context) (Counters, error) {
	var n Counters
	ready := make(chan struct{})
	err := p.Submit(func() {
		p.Snapshot(&n)
		close(ready)
	})
	if err == ErrBusy {
		return Counters{}, err
	}
	if err == nil {
		select {
		case <-ready:
			return n, nil
		case <-ctx.Done():
			return Counters{}, ctx.Err()
		case <-p.done:
		}
	}
	select {
	case <-p.done:
		return p.last, nil
	case <-ctx.Done():
		return Counters{}, ctx.Err()
	}
}

func (p *Poller) drainAll() {
	for p.drainControl() > 0 {
	}
}

// drainControl runs what was submitted; at most one ring's worth, so that functions that submit
// cannot hold the Turn.
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

// drainLast runs, on a caller's goroutine, what came after lastOrders.
func (p *Poller) drainLast() {
	p.late.Lock()
	defer p.late.Unlock()
	p.drainAll()
}
