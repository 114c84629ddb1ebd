package stack

import (
	"cmp"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/pmd"
)

// asleepMaxNs bounds a sleep under IdleInterrupt. Nothing waits for it: whatever is for the Poller
// rouses it, except from a sleep that is deaf, which is short. It is there for a device whose
// interrupt gets lost.
const asleepMaxNs = 100_000_000

// polling is how many Pollers of this process run.
var polling atomic.Int32

// noneLeft says that the Pollers could have all of Go's processors (GOMAXPROCS) among them:
// handlers, the control socket and the garbage collector would wait for as long as Pollers sleep
// without telling.
func noneLeft() bool { return int(polling.Load()) >= runtime.GOMAXPROCS(0) }

// rouser wakes a Poller that sleeps until its device interrupts (IdleInterrupt). A goroutine that
// leaves something for a Poller calls rouse afterwards; the Poller says that it is asleep, then
// looks once more, then sleeps. So one of the two sees the other. Without a sleeper a call is one
// load.
//
//	the Poller                          another goroutine
//	asleep = true                       push (doorbell, Submit, crossing)
//	Turn: is there anything?            asleep? write the eventfd
//	epoll_wait(device, eventfd, deadline)
//	asleep = false
type rouser struct {
	_      [64]byte
	own    uint32
	_      [64]byte
	asleep *uint32  // own, or Bell's; 1: it is
	bell   *os.File // an eventfd; nil: the Poller never sleeps so
	wakeups
	device pmd.Interrupter
	maxNs  int64 // asleepMaxNs, except in tests
}

// Bell lets others than goroutines wake a Poller: threads that run no Go, with which the words
// are shared. They leave something, then look at Asleep, swap it for 0, and if it was 1 write 8
// octets, the number 1, to FD.
type Bell struct {
	Asleep *uint32
	FD     int // an eventfd, blocking; the Poller keeps a copy
	// Crowded, if not nil, is 1 while the Poller shares its core with threads that run, as far as
	// it knows: then polling on another one may keep it from having that. The Poller writes it.
	Crowded *uint32
}

var one = [8]byte{1} // to add to an eventfd, on a little-endian machine; on another one as good

// rouse is for any goroutine, after it has left something.
func (r *rouser) rouse() {
	if atomic.LoadUint32(r.asleep) != 0 && atomic.SwapUint32(r.asleep, 0) != 0 {
		_, _ = r.bell.Write(one[:])
	}
}

// prepare makes what it takes to sleep.
func (r *rouser) prepare(device pmd.Interrupter, bell *Bell) error {
	fd, err := -1, error(nil)
	if bell != nil {
		fd, err = unix.FcntlInt(uintptr(bell.FD), unix.F_DUPFD_CLOEXEC, 0)
	} else {
		fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	}
	if err != nil {
		return err
	}
	// An os.File, for its Write and its Close may meet.
	r.bell, r.device = os.NewFile(uintptr(fd), "eventfd"), device
	irq, _ := device.Interrupt()
	r.maxNs = cmp.Or(r.maxNs, asleepMaxNs)
	if err := r.open(irq, fd); err != nil {
		_ = r.bell.Close()
		r.bell = nil
		return err
	}
	return nil
}

// sleep returns when a frame has come, rouse was called, or the deadline is reached; at once if
// turn finds work. It says whether it slept, and whether rouse was called. In company Go's
// scheduler is told, so that others get the processor. If deafNs is not 0 the sleep is no longer
// than that, and rouse does not end it.
//
// deadline is told how long the sleep may last at most, and says when it is and when the sleep has
// to end.
func (r *rouser) sleep(turn func() int, deadline func(maxNs int64) (now, at int64), company bool,
	deafNs int64) (slept, rung bool) {
	tell := company || noneLeft()
	if tell {
		runtime.Gosched() // sleeps that follow each other soon would be over before anybody takes our P
	}
	most, hears := r.maxNs, deafNs == 0
	if hears {
		atomic.StoreUint32(r.asleep, 1)
	} else {
		most = min(most, deafNs)
	}
	r.device.Arm(true)
	if turn() == 0 {
		if now, at := deadline(most); at > now {
			r.await(now, min(at-now, most), tell)
			slept = true
		}
	}
	r.device.Arm(false)
	return slept, atomic.SwapUint32(r.asleep, 0) == 0 && hears
}

// close is for the end of Run.
func (r *rouser) close() {
	if r.bell != nil {
		_ = r.bell.Close()
		r.wakeups.close()
	}
}
