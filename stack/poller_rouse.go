package stack

import (
	"cmp"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/pmd"
)

// asleepMaxNs bounds a sleep under IdleInterrupt. Nothing waits for it: whatever is for the Poller
// rouses it. It is there for a device whose interrupt gets lost.
const asleepMaxNs = 100_000_000

// rouser wakes a Poller that sleeps until its device interrupts (IdleInterrupt). Whoever leaves
// something for a Poller calls rouse afterwards; the Poller says that it is asleep, then looks once
// more, then sleeps. So one of the two sees the other. Without a sleeper a call is one load.
//
//	the Poller                          another goroutine
//	asleep = true                       push (doorbell, Submit, crossing)
//	Turn: is there anything?            asleep? write the eventfd
//	ppoll(device, eventfd, deadline)
//	asleep = false
type rouser struct {
	_      [64]byte
	asleep atomic.Bool
	_      [64]byte
	bell   *os.File // an eventfd; nil: the Poller never sleeps so
	fds    [2]unix.PollFd
	device pmd.Interrupter
	maxNs  int64 // asleepMaxNs, except in tests
}

var one = [8]byte{1} // to add to an eventfd, on a little-endian machine; on another one as good

// rouse is for any goroutine, after it has left something.
func (r *rouser) rouse() {
	if r.asleep.Load() && r.asleep.CompareAndSwap(true, false) {
		_, _ = r.bell.Write(one[:])
	}
}

// prepare makes what it takes to sleep.
func (r *rouser) prepare(device pmd.Interrupter) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	// An os.File, for its Write and its Close may meet.
	r.bell, r.device = os.NewFile(uintptr(fd), "eventfd"), device
	irq, _ := device.Interrupt()
	r.maxNs = cmp.Or(r.maxNs, asleepMaxNs)
	r.fds = [2]unix.PollFd{{Fd: int32(irq), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
	return nil
}

// sleep returns when a frame has come, rouse was called, or the deadline is reached; at once if
// turn finds work. It says whether it slept.
func (r *rouser) sleep(turn func() int, deadline func() (now, at int64)) (slept bool) {
	r.asleep.Store(true)
	r.device.Arm(true)
	if turn() == 0 {
		if now, at := deadline(); at > now {
			ts := unix.NsecToTimespec(min(at-now, r.maxNs))
			_, _ = unix.Ppoll(r.fds[:], &ts, nil) // a signal cuts it short, which is harmless
			slept = true
		}
	}
	r.device.Arm(false)
	if !r.asleep.CompareAndSwap(true, false) {
		var n [8]byte
		_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(r.fds[1].Fd), uintptr(unsafe.Pointer(&n)), uintptr(len(n)))
	}
	return slept
}

// close is for the end of Run.
func (r *rouser) close() {
	if r.bell != nil {
		_ = r.bell.Close()
	}
}
