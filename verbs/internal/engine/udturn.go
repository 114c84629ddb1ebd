package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// udTurn is for several Pollers, none of which looks at doorbells: run does (Engine.run), and has
// the first Poller, which drives the datagrams, look at those of queue pairs for datagrams.
type udTurn struct {
	engine *Engine
	quiet  chan func()
	marked atomic.Bool // some bit is set
	bits   [ring.QPsMax / 64]atomic.Uint64
}

func (t *udTurn) init(e *Engine) {
	t.engine, t.quiet = e, make(chan func(), ring.Calls)
}

// ring has the Poller look at the queue pair of a bit. Any goroutine.
func (t *udTurn) ring(bit int) {
	t.mark(bit)
	t.wake()
}

// mark is ring for the Poller's own goroutine, in a Turn, which is not the last one then.
func (t *udTurn) mark(bit int) {
	t.bits[bit/64].Or(1 << (bit % 64))
	t.marked.Store(true)
}

// wake has the Poller make a Turn. Its ring is full: it makes one anyway.
func (t *udTurn) wake() { _ = t.engine.poller.Submit(func() {}) }

// run is the first Poller's, in each Turn.
func (t *udTurn) run() (n int) {
	if len(t.quiet) > 0 {
		(<-t.quiet)()
		n++
	}
	if t.marked.Swap(false) {
		for i := range t.bits {
			for b := t.bits[i].Swap(0); b != 0; b &= b - 1 {
				if q := t.engine.qps[i*64+bits.TrailingZeros64(b)].Load(); q != nil && q.ud != nil {
					q.ud.doorbell()
				}
				n++
			}
		}
	}
	if s := t.engine.udStack; s != nil {
		s.turn()
	}
	return n
}

// whenUDQuiet runs f on the goroutine that drives datagrams, and returns after it.
func (e *Engine) whenUDQuiet(f func()) {
	if e.polled {
		e.whenQuiet(f)
		return
	}
	done := make(chan struct{})
	e.udTurn.quiet <- func() {
		f()
		close(done)
	}
	e.udTurn.wake()
	<-done
}
