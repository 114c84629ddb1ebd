package stack

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/mem"
)

// Submit runs fn on the Poller's goroutine at the start of a Turn. Any goroutine. It does not wait.
// Errors: ErrBusy when the ring is full, ErrStopped after Stop; with either, fn is not run.
//
// Without an error fn is always run. If it comes at the moment in which the Poller ends, it is run
// on the caller's goroutine, one function at a time, and finds a Poller that has stopped. Only then
// does Submit take a lock.
func (p *Poller) Submit(fn func()) error {
	return p.control.submit(fn, &p.rouser)
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

// control carries functions from any goroutine to the Poller's, up to the Poller's end and a moment
// beyond it.
type control struct {
	ring     *mem.MPSC[func()]
	stopping atomic.Bool // no more are taken
	ended    atomic.Bool // no goroutine turns the Poller any more: submit runs what it pushes
	late     sync.Mutex  // held by the goroutine that does
	ran      uint64      // functions
}

func newControl() *control {
	return &control{ring: mem.NewMPSC(make([]mem.MPSCSlot[func()], controlRingEntries))}
}

// submit is Poller.Submit.
func (k *control) submit(fn func(), r *rouse.Rouser) error {
	if k.stopping.Load() {
		return ErrStopped
	}
	if !k.ring.Push(fn) {
		return ErrBusy
	}
	r.Rouse()
	if k.ended.Load() { // fn came after the last look at the ring, or is being run now
		k.late.Lock()
		defer k.late.Unlock()
		k.drainAll()
	}
	return nil
}

// waits says that drain would run some.
func (k *control) waits() bool { return k.ring.Waits() }

// drain runs what was submitted; at most one ring's worth, so that functions that submit cannot
// hold the Turn.
func (k *control) drain() int {
	work := 0
	for range controlRingEntries {
		fn, ok := k.ring.Pop()
		if !ok {
			break
		}
		work++
		fn()
	}
	k.ran += uint64(work)
	return work
}

func (k *control) drainAll() {
	for k.drain() > 0 {
	}
}

// end runs what was submitted before the end, which finds a stopped Poller, and then keep. ended is
// set before the ring is looked at: a submit that does not see it pushed before that.
func (k *control) end(keep func()) {
	k.late.Lock()
	defer k.late.Unlock()
	k.ended.Store(true)
	k.drainAll()
	keep()
}
