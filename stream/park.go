package stream

import "sync/atomic"

// parker is where one goroutine waits: arm, look once more at what is waited for, then wait on ch.
// The goroutine that makes it true calls wake after. Tokens may be stale: the waiter looks again,
// always.
type parker struct {
	waiting atomic.Bool
	ch      chan struct{} // capacity 1
}

func newParker() parker { return parker{ch: make(chan struct{}, 1)} }

// wake costs one load when no goroutine waits. Any goroutine; never blocks.
func (p *parker) wake() {
	if !p.waiting.Load() || !p.waiting.CompareAndSwap(true, false) {
		return
	}
	select {
	case p.ch <- struct{}{}:
	default:
	}
}

func (p *parker) arm() { p.waiting.Store(true) }

// wait after arm; it returns when woken or when cancel is closed.
func (p *parker) wait(cancel <-chan struct{}) {
	select {
	case <-p.ch:
	case <-cancel:
	}
	p.waiting.Store(false)
}
