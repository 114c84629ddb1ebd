package engine

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Engine serves one process.
type Engine struct {
	area     *ring.Area
	wake     *os.File // eventfd of calls
	bell     *os.File // eventfd of doorbells
	polled   bool     // a Poller looks at doorbells; false: run does
	adapter  *rnic.Adapter
	ownTCP   bool      // Host.OwnTCP
	log      io.Writer // nil: none
	faults   faults    // Host.Faults
	standard io.Writer // Host.Errors
	// both ends of a connection within the process, over our own TCP (within.go)
	loop    func(context.Context) (mine, theirs net.Conn, err error)
	endings untold
	left    func() // Host.Left
	siw     bool   // Host.PeersAreSiw
	noCRC   bool   // Host.NoCRC
	addrs   []netip.Addr
	mtu     int
	mac     [6]byte

	objects  handles
	limits   *limits
	channels channels
	dials    dials
	parked   parking
	qps      [ring.QPsMax]atomic.Pointer[qp] // by doorbell bit
	// run between two looks at the doorbells, by the goroutine that looks
	quiet   chan func()
	fresh   atomic.Bool     // there are completions that telling has not heard of
	telling waiting.Telling // onTurn's

	roce     bool       // Host.RoCE
	slotting sync.Mutex // of slot and udPort
	slot     *slot      // nil: no queue pair has had a number
	refusals refusals
	services serviceStacks  // over our own stack
	secret   []byte         // Host.Secret
	allowed  []netip.Prefix // Host.Allow
	poller   *stack.Poller  // Host.Poller
	udPort   *udPort        // nil: there was no queue pair for datagrams
	udStack  *udStack       // onTurn's: its carrier, over our own stack
	udTurn   udTurn         // where another goroutine drives datagrams
	port     portWatch
	linkUp   func() (now, ever bool) // Host.LinkUp
	// queue pairs that were destroyed and whose connections have not ended
	winding sync.WaitGroup
}

// Host is what an engine stands on.
type Host struct {
	Adapter *rnic.Adapter
	Poller  *stack.Poller // of our own stack, the first of them; nil: none
	OwnTCP  bool          // connections go over our own stack, not over the kernel's sockets
	Log     io.Writer     // where to tell of listeners and connections; nil: nowhere
	Faults  io.Writer     // without Log: where to tell of connections that a Terminate has ended
	Errors  io.Writer     // where to tell of what ends a queue pair; nil: standard error
	Polled  bool          // a Poller calls Doorbells.Look in each Turn
	// Addrs are those that connections are bound to; none: all of this host's. MTU and MAC are the
	// device's with OwnTCP.
	Addrs []netip.Addr
	MTU   int
	MAC   [6]byte
	// PeersAreSiw does without markers and has the quirks that Linux siw needs
	// (docs/guides/interop.md).
	PeersAreSiw bool
	// NoCRC does without CRC32C where the peer does, too.
	NoCRC bool
	// Left is called, if it is not nil, when the program ends in order and its connections have.
	Left func()
	// Serving is called, if it is not nil, on a goroutine of its own when there is a device.
	Serving func(*Engine)
	// RoCE has the device look like one of RoCE: queue pairs have numbers by which they are
	// connected (docs/adr/0046-queue-pairs-by-number.md).
	RoCE bool
	// Secret is what the peers of queue pairs by number must have, too; nil: nothing. Allow are the
	// addresses of those that may connect, or send datagrams; none: all.
	Secret []byte
	Allow  []netip.Prefix
	// LinkUp says whether the device of OwnTCP is connected, and ever was; nil: always. Any
	// goroutine.
	LinkUp func() (now, ever bool)
}

// Doorbells is what a Poller needs that looks at the program's doorbells itself: what is posted
// then leaves in the Turn that finds it, and no other thread has to run for that.
type Doorbells struct {
	Look func() int // for stack.Config.OnTurn, of one Poller
	Bell stack.Bell // by which the program wakes it
	// Datagrams is for OnTurn of the first of several Pollers, where none calls Look: it drives the
	// datagrams.
	Datagrams func() int
}

// Limits are those of the Adapter.
func Limits() rnic.Config {
	return rnic.Config{RegionsMax: ring.MRsMax + ring.MWsMax + ring.QPsMax, ConnsMax: ring.QPsMax,
		EventsMax: 4096}
}

// Serve serves the area for as long as the process lives, on what open makes. Without that, calls
// fail as if the device had gone, and standard error says why.
func Serve(area unsafe.Pointer, open func(Doorbells) (Host, error)) {
	e, err := newEngine((*ring.Area)(area))
	e.keepDescriptors()
	var h Host
	if err == nil {
		h, err = open(Doorbells{Look: e.onTurn, Datagrams: e.udTurn.run, Bell: stack.Bell{
			Asleep: &e.area.Dozing, FD: int(e.area.BellFD), Crowded: &e.area.Crowded,
			Resting: &e.area.Resting, Waits: &e.area.Waits, Polls: &e.area.Polls,
		}})
	}
	if err != nil {
		lossy.Line(os.Stderr, "rnicd: "+printable.Lines(err.Error()))
	}
	e.start(h)
	e.run()
}

// newEngine is an engine that has nothing to stand on yet.
func newEngine(area *ring.Area) (*Engine, error) {
	e := &Engine{area: area, wake: os.NewFile(uintptr(area.WakeFD), "wake"),
		quiet: make(chan func(), ring.Calls), limits: newLimits(), loop: loopback}
	e.objects.of(area.Process)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return e, fmt.Errorf("eventfd: %w", err)
	}
	e.udTurn.init(e)
	area.BellFD, e.bell = int32(fd), os.NewFile(uintptr(fd), "bell")
	return e, nil
}

// keepDescriptors has the program not close those that the engine cannot do without.
func (e *Engine) keepDescriptors() {
	owned.Keep(int(e.area.WakeFD))
	owned.Keep(int(e.area.BellFD))
	_ = owned.KeepRuntime() // without /proc a program that closes everything ends
	atomic.StoreUint64(&e.area.Owned, uint64(uintptr(unsafe.Pointer(&owned.All))))
}

const _ = uint(ring.OwnedMax-owned.Max) | uint(owned.Max-ring.OwnedMax) // they are the same

// start puts it on h, which has no Adapter if there is no device. Before run.
func (e *Engine) start(h Host) {
	e.adapter, e.ownTCP, e.log, e.polled = h.Adapter, h.OwnTCP, h.Log, h.Polled
	e.poller, e.left = h.Poller, h.Left
	e.faults.to, e.standard = h.Faults, h.Errors
	e.siw, e.noCRC, e.roce = h.PeersAreSiw, h.NoCRC, h.RoCE || e.area.Looks != 0
	e.addrs, e.mtu, e.mac = h.Addrs, h.MTU, h.MAC
	e.secret, e.allowed, e.linkUp = h.Secret, h.Allow, h.LinkUp
	if !e.polled {
		// run sleeps for calls and doorbells alike, in one descriptor.
		owned.Forget(int(e.area.BellFD))
		_ = e.bell.Close() // the program has not been told of it
		e.bell, e.area.BellFD = e.wake, e.area.WakeFD
	}
	if h.Adapter != nil && h.Polled && !h.OwnTCP {
		atomic.StoreUint32(&e.area.Drives, 1)
	}
	if h.Adapter != nil {
		go e.tellEvents(h.Adapter.Events())
		if h.Serving != nil {
			go h.Serving(e)
		}
	}
}

// looksMax is how many empty polls the engine makes before it sleeps. Another look after others
// have run costs less than waking up.
const looksMax = 20

// run hands out calls and, where no Poller does, rings doorbells. It sleeps in wake when there
// are none.
func (e *Engine) run() {
	var buf [8]byte
	for vain := 0; ; {
		if e.look() {
			vain = 0
			continue
		}
		if vain++; vain < looksMax && !e.polled {
			runtime.Gosched()
			continue
		}
		e.sleeps(1) // the other side publishes, then reads this
		if !e.look() {
			_, _ = e.wake.Read(buf[:])
		}
		e.sleeps(0)
		vain = 0
	}
}

func (e *Engine) sleeps(yes uint32) {
	atomic.StoreUint32(&e.area.Sleeping, yes)
	if !e.polled {
		atomic.StoreUint32(&e.area.Dozing, yes)
	}
}

// look says whether there was something to do.
func (e *Engine) look() bool {
	found := !e.polled && e.onTurn() > 0
	for i := range e.area.Calls {
		c := &e.area.Calls[i]
		if atomic.LoadUint32(&c.State) == ring.CallPosted &&
			atomic.CompareAndSwapUint32(&c.State, ring.CallPosted, ring.CallTaken) {
			found = true
			go e.serve(c)
		}
	}
	return found
}

// onTurn rings the doorbells, and says how many. One goroutine: a Poller's, or run's.
func (e *Engine) onTurn() (n int) {
	if atomic.LoadUint64(&e.area.Summary) != 0 {
		for s := atomic.SwapUint64(&e.area.Summary, 0); s != 0; s &= s - 1 {
			n += e.ring(bits.TrailingZeros64(s))
		}
	}
	if len(e.quiet) > 0 {
		(<-e.quiet)()
		n++
	}
	if e.polled && e.udStack != nil {
		e.udStack.turn()
	}
	fresh := e.fresh.Load()
	if fresh {
		e.fresh.Store(false)
	}
	if e.telling.Turned(fresh) {
		e.tellProgress()
	}
	if e.telling.Owes() {
		n++ // so that the Poller does not sleep before it has told
	}
	return n
}

// progress is called after a completion. A thread of the program that waits for one is woken by
// onTurn, when nothing more completes or some Turns later; where no Poller turns, at once: a
// program that ran in between would find few, and wait again.
func (e *Engine) progress() {
	if !e.polled {
		e.tellProgress()
	} else if !e.fresh.Load() {
		e.fresh.Store(true)
	}
}

func (e *Engine) tellProgress() {
	atomic.AddUint32(&e.area.Progress, 1)
	if atomic.LoadUint32(&e.area.Waiting) != 0 {
		futexWake(&e.area.Progress)
	}
}

// ring rings the doorbells of one word.
func (e *Engine) ring(word int) (n int) {
	for b := atomic.SwapUint64(&e.area.Doorbells[word], 0); b != 0; b &= b - 1 {
		if q := e.qps[word*64+bits.TrailingZeros64(b)].Load(); q != nil {
			q.doorbell()
		}
		n++
	}
	return n
}

// whenQuiet runs f while no doorbell is being rung, and returns after it.
func (e *Engine) whenQuiet(f func()) {
	done := make(chan struct{})
	e.quiet <- func() {
		f()
		close(done)
	}
	e.rouse() // after it is there: the goroutine that looks does so once more, and may sleep again
	<-done
}

// rouse wakes the goroutine that looks at doorbells.
func (e *Engine) rouse() {
	if atomic.SwapUint32(&e.area.Dozing, 0) != 0 {
		_, _ = e.bell.Write(oneRing[:])
	}
}

// oneRing is written to the bell. Were it rouse's own, os would let it escape in a race build, and
// each ring would allocate.
var oneRing = [8]byte{1}
