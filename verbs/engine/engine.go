package engine

import (
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"os"
	"runtime"
	"sync"
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
	addrs   []netip.Prefix // of our own stack; none: the kernel's sockets
	log     io.Writer      // nil: none
	siw     bool           // Host.PeersAreSiw

	objects  handles
	channels channels
	parked   parking
	qps      [ring.QPsMax]atomic.Pointer[qp] // by doorbell bit
	quiet    chan func()                     // run by run, between two looks at the doorbells
	winding  sync.WaitGroup                  // queue pairs that were destroyed and whose connections have not ended
}

// Host is what an engine stands on.
type Host struct {
	Adapter *rnic.Adapter
	Addrs   []netip.Prefix // of our own stack; none where connections go over the kernel's sockets
	Log     io.Writer      // where to tell of listeners and connections; nil: nowhere
	// PeersAreSiw does without markers and has the quirks that Linux siw needs (docs/guides/interop.md).
	PeersAreSiw bool
}

// Limits are those of the Adapter.
func Limits() rnic.Config {
	return rnic.Config{RegionsMax: 1 << 16, ConnsMax: ring.QPsMax, EventsMax: 4096}
}

// Serve serves the area for as long as the process lives, on what open makes. Without that, calls
// fail as if the device had gone, and standard error says why.
func Serve(area unsafe.Pointer, open func() (Host, error)) {
	h, err := open()
	if err != nil {
		fmt.Fprintf(os.Stderr, "rnicd: %v\n", err)
	}
	newEngine((*ring.Area)(area), h).run()
}

// newEngine is an engine on h, which has no Adapter if there is no device.
func newEngine(area *ring.Area, h Host) *Engine {
	e := &Engine{
		area: area, adapter: h.Adapter, addrs: h.Addrs, log: h.Log, siw: h.PeersAreSiw, wake: os.NewFile(uintptr(area.WakeFD), "wake"), quiet: make(chan func(), ring.Calls),
	}
	if h.Adapter != nil {
		go e.tellEvents(h.Adapter.Events())
	}
	return e
}

// tellLog writes a line for who looks what the program does.
func (e *Engine) tellLog(format string, args ...any) {
	if e.log != nil {
		fmt.Fprintf(e.log, "rnicd: "+format+"\n", args...)
	}
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
