package engine

import (
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/ring"
)

// Engine serves one process.
type Engine struct {
	area    *ring.Area
	wake    *os.File // eventfd
	adapter *rnic.Adapter

	objects  handles
	channels channels
	parked   parking
	qps      [ring.QPsMax]atomic.Pointer[qp] // by doorbell bit
	quiet    chan func()                     // run by run, between two looks at the doorbells
}

// Limits of the Adapter.
const (
	regionsMax = 1 << 16
	connsMax   = ring.QPsMax
	eventsMax  = 4096
)

// Serve serves the area for as long as the process lives.
func Serve(area unsafe.Pointer) {
	e, err := newEngine((*ring.Area)(area))
	if err != nil {
		panic(err) // limits are ours
	}
	e.run()
}

func newEngine(area *ring.Area) (*Engine, error) {
	a, err := rnic.Open(rnic.Config{RegionsMax: regionsMax, ConnsMax: connsMax, EventsMax: eventsMax})
	if err != nil {
		return nil, err
	}
	e := &Engine{area: area, adapter: a, wake: os.NewFile(uintptr(area.WakeFD), "wake"), quiet: make(chan func(), ring.Calls)}
	go e.tellEvents(a.Events())
	return e, nil
}

// looksMax is how often the engine looks in vain before it sleeps. Another look after others have
// run costs less than waking up.
const looksMax = 20

// run hands out calls and rings doorbells. It sleeps in wake when there are none.
func (e *Engine) run() {
	var buf [8]byte
	for vain := 0; ; {
		if e.look() {
			vain = 0
			continue
		}
		if vain++; vain < looksMax {
			runtime.Gosched()
			continue
		}
		atomic.StoreUint32(&e.area.Sleeping, 1) // the other side publishes, then reads this
		if !e.look() {
			_, _ = e.wake.Read(buf[:])
		}
		atomic.StoreUint32(&e.area.Sleeping, 0)
		vain = 0
	}
}

// look says whether there was something to do.
func (e *Engine) look() bool {
	found := false
	if s := atomic.SwapUint64(&e.area.Summary, 0); s != 0 {
		found = true
		for ; s != 0; s &= s - 1 {
			e.ring(bits.TrailingZeros64(s))
		}
	}
	for i := range e.area.Calls {
		c := &e.area.Calls[i]
		if atomic.LoadUint32(&c.State) == ring.CallPosted && atomic.CompareAndSwapUint32(&c.State, ring.CallPosted, ring.CallTaken) {
			found = true
			go e.serve(c)
		}
	}
	select {
	case f := <-e.quiet:
		f()
		return true
	default:
		return found
	}
}

// ring rings the doorbells of one word.
func (e *Engine) ring(word int) {
	for b := atomic.SwapUint64(&e.area.Doorbells[word], 0); b != 0; b &= b - 1 {
		if q := e.qps[word*64+bits.TrailingZeros64(b)].Load(); q != nil {
			q.rnic.Doorbell()
		}
	}
}

// whenQuiet runs f while no doorbell is being rung, and returns after it.
func (e *Engine) whenQuiet(f func()) {
	done := make(chan struct{})
	e.quiet <- func() {
		f()
		close(done)
	}
	e.rouse() // after it is there: run looks once, and may sleep again
	<-done
}

// rouse wakes run.
func (e *Engine) rouse() {
	one := [8]byte{1}
	_, _ = e.wake.Write(one[:])
}
