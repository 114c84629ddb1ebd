package rouse

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
)

// asleepMaxNs bounds a sleep. Nothing waits for it: whatever is for the sleeper rouses it, except
// from a sleep that is deaf, which is short. It is there for a device whose interrupt gets lost.
const asleepMaxNs = 100_000_000

// Pollers is how many goroutines of this process poll, and may keep their processor of Go's.
var Pollers atomic.Int32

// noneLeft says that they could have all of Go's processors (GOMAXPROCS) among them: handlers, the
// control socket and the garbage collector would wait for as long as they sleep without telling.
func noneLeft() bool { return int(Pollers.Load()) >= runtime.GOMAXPROCS(0) }

// Device is what a sleeper polls, and what it sleeps until.
type Device interface {
	// Interrupt is the descriptor that is readable when there is something; false: there is none.
	Interrupt() (fd int, ok bool)
	// Arm switches it on, for what comes from now on; off when the sleep is over.
	Arm(on bool)
}

// Rouser wakes a goroutine that sleeps until its device interrupts. One that leaves something for
// it calls Rouse afterwards; the sleeper says that it is asleep, then looks once more, then sleeps.
// So one of the two sees the other. Without a sleeper a call is one load.
//
//	the sleeper                         another goroutine
//	asleep = true                       push (doorbell, Submit, crossing)
//	look: is there anything?            asleep? write the eventfd
//	epoll_wait(device, eventfd, deadline)
//	asleep = false
//
// Its methods are the sleeper's, where they do not say otherwise.
type Rouser struct {
	_       [64]byte
	own     uint32
	ownRest uint32
	_       [64]byte
	resting *uint32              // ownRest, or Bell's; 1: it rests
	asleep  *uint32              // own, or Bell's; 1: it is
	bell    atomic.Pointer[bell] // nil: there are no sleeps
	another atomic.Bool          // a descriptor is not ours any more, or the device has another one
	wakeups
	rest   wakeups // without the device
	device Device
	given  *Bell // Prepare's
	lost   []*bell
	// MaxNs is the longest sleep; before Prepare. 0: asleepMaxNs.
	MaxNs int64
}

// Bell lets others than goroutines wake a sleeper: threads that run no Go, with which the words are
// shared. They leave something, then look at Asleep, swap it for 0, and if it was 1 write 8 octets,
// the number 1, to FD.
type Bell struct {
	Asleep *uint32
	FD     int // an eventfd, blocking; the sleeper keeps a copy
	// Crowded, if not nil, is 1 while the sleeper shares its core with threads that run, as far as
	// it knows: then polling on another one may keep it from having that. The sleeper writes it.
	Crowded *uint32
	// Resting, if not nil, is 1 while the sleeper leaves its device to the Turns of such threads.
	// One that begins to wait sets Waits to 1, then looks at Resting, swaps it for 0, and if it was
	// 1 writes as above. The sleeper looks at Waits before each rest, and sets it to 0.
	Resting, Waits *uint32
	// Polls, if not nil, counts such threads' polls that made a Turn which found work, but nothing
	// for them, as the poll before: they go on polling.
	Polls *uint64
}

// Polled is Polls. Any goroutine.
func (b *Bell) Polled() uint64 {
	if b == nil || b.Polls == nil {
		return 0
	}
	return atomic.LoadUint64(b.Polls)
}

// Waited says whether a thread that runs no Go has begun to wait since it was called last. The
// sleeper.
func (b *Bell) Waited() bool {
	return b != nil && b.Waits != nil && atomic.LoadUint32(b.Waits) != 0 &&
		atomic.SwapUint32(b.Waits, 0) != 0
}

// Init has it take bell, which may be nil, for its own word. Before it is used.
func (r *Rouser) Init(bell *Bell) {
	r.asleep, r.resting = &r.own, &r.ownRest
	if bell != nil {
		r.asleep = bell.Asleep
	}
	if bell != nil && bell.Resting != nil {
		r.resting = bell.Resting
	}
}

// Asleep says that it waits for an interrupt of its device. Any goroutine.
func (r *Rouser) Asleep() bool { return atomic.LoadUint32(r.asleep) != 0 }

// Resting says that it leaves its device to others. Any goroutine.
func (r *Rouser) Resting() bool { return atomic.LoadUint32(r.resting) != 0 }

var one = [8]byte{1} // to add to an eventfd, on a little-endian machine; on another one as good

// Rouse is for any goroutine, after it has left something.
func (r *Rouser) Rouse() {
	if atomic.LoadUint32(r.asleep) != 0 && atomic.SwapUint32(r.asleep, 0) != 0 {
		r.ring()
	}
}

func (r *Rouser) ring() {
	if _, err := r.bell.Load().Write(one[:]); err != nil && !errors.Is(err, os.ErrClosed) {
		r.another.Store(true)
	}
}

// Another is for a device that interrupts by another descriptor from now on.
func (r *Rouser) Another() { r.another.Store(true) }

// EndRest is for any goroutine, after it has left something for which a Rest is to end.
func (r *Rouser) EndRest() {
	if atomic.LoadUint32(r.resting) != 0 && atomic.SwapUint32(r.resting, 0) != 0 {
		r.ring()
	}
}

// Prepare makes what it takes to sleep. bell is Init's.
func (r *Rouser) Prepare(device Device, bell *Bell) error {
	r.device, r.given, r.MaxNs = device, bell, cmp.Or(r.MaxNs, asleepMaxNs)
	r.another.Store(false)
	return r.prepare()
}

func (r *Rouser) prepare() error {
	b, err := newBell(r.given)
	if err != nil {
		return err
	}
	irq, _ := r.device.Interrupt()
	if err = r.open(irq, b.fd); err == nil {
		if err = r.rest.open(-1, b.fd); err != nil {
			r.wakeups.close()
		}
	}
	if err != nil {
		b.close()
		return err
	}
	r.bell.Store(b)
	return nil
}

// again makes everything anew. A number that was closed by mistake may be something else's by now,
// so none is closed.
func (r *Rouser) again() {
	old, was, rest := r.bell.Load(), r.wakeups, r.rest
	owned.Forget(old.fd)
	was.forget()
	rest.forget()
	r.another.Store(false)
	r.wakeups, r.rest = wakeups{}, wakeups{}
	if r.prepare() != nil {
		r.wakeups, r.rest = was, rest
		r.another.Store(true)
		return
	}
	r.lost = append(r.lost, old) // else the garbage collector closes it
}

// bell is an eventfd. An os.File, for its Write and its Close may meet.
type bell struct {
	*os.File
	fd int
}

// newBell is a copy of given, or one of its own.
func newBell(given *Bell) (*bell, error) {
	fd, err := -1, error(nil)
	if given != nil {
		fd, err = unix.FcntlInt(uintptr(given.FD), unix.F_DUPFD_CLOEXEC, 0)
	} else {
		fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	owned.Keep(fd)
	return &bell{os.NewFile(uintptr(fd), "eventfd"), fd}, nil
}

func (b *bell) close() {
	owned.Forget(b.fd)
	_ = b.Close()
}

// Sleep returns when a frame has come, Rouse was called, or the deadline is reached; at once if
// turn finds work. It says whether it slept, and whether Rouse was called. In company Go's
// scheduler is told, so that others get the processor. If deafNs is not 0 the sleep is no longer
// than that, and Rouse does not end it.
//
// deadline is told how long the sleep may last at most, and says when it is and when the sleep has
// to end.
func (r *Rouser) Sleep(turn func() int, deadline func(maxNs int64) (now, at int64), company bool,
	deafNs int64) (slept, rung bool) {
	if r.another.Load() {
		r.again()
	}
	tell := company || noneLeft()
	if tell {
		runtime.Gosched() // sleeps that follow each other soon would be over before anybody takes our P
	}
	most, hears := r.MaxNs, deafNs == 0
	if hears {
		atomic.StoreUint32(r.asleep, 1)
	} else {
		most = min(most, deafNs)
	}
	r.device.Arm(true)
	if turn() == 0 {
		if now, at := deadline(most); at > now {
			if slept = true; !r.await(now, min(at-now, most), tell) {
				r.another.Store(true)
			}
		}
	}
	r.device.Arm(false)
	return slept, atomic.SwapUint32(r.asleep, 0) == 0 && hears
}

// Rest sleeps for ns, and neither the device nor Rouse ends that, but EndRest does. stay says that
// there is no reason yet to end it. tell: others are to have Go's processor meanwhile.
func (r *Rouser) Rest(now, ns int64, tell bool, stay func() bool) {
	atomic.StoreUint32(r.resting, 1)
	if stay() && !r.rest.await(now, ns, tell || noneLeft()) {
		r.another.Store(true)
	}
	atomic.StoreUint32(r.resting, 0)
}

// Close is for the end.
func (r *Rouser) Close() {
	if b := r.bell.Load(); b != nil {
		b.close()
		r.wakeups.close()
		r.rest.close()
	}
}
