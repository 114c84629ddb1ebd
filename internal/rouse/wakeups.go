package rouse

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
)

// quietSleepMaxNs is for how long Go's scheduler is not told of a sleep.
const quietSleepMaxNs = 1_000_000

// lostPauseNs is between attempts to replace descriptors.
const lostPauseNs = 1_000_000

// wakeups is what ends a sleep: the device's interrupt, the bell and a timer, in one epoll.
//
// The bell is watched for edges: nobody reads it. The timer is set ahead, and stays as it is while
// the sleeper sleeps and wakes. A timeout of each sleep's own would be due before the next tick, so
// it would have to be programmed into the processor's timer and out of it again: two exits to the
// host on a virtual machine, as long as the rest of the sleep (docs/results/verbs.md).
type wakeups struct {
	epoll, timer int
	lost         bool  // one of them has been closed by mistake
	due          int64 // when the timer goes off; 0: it has, or was never set
}

// What the epoll's events carry.
const (
	wakeTimer int32 = iota
	wakeDevice
	wakeBell
	wakeKinds
)

// open makes it. device is -1 where there is none.
func (w *wakeups) open(device, bell int) (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	owned.Keep(w.epoll)
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC); err != nil {
		_ = owned.Close(w.epoll)
		return err
	}
	owned.Keep(w.timer)
	const edges = unix.EPOLLIN | unix.EPOLLET&0xffffffff
	for kind, watch := range [wakeKinds]struct {
		fd     int
		events uint32
	}{wakeTimer: {w.timer, edges}, wakeDevice: {device, unix.EPOLLIN}, wakeBell: {bell, edges}} {
		if watch.fd < 0 {
			continue
		}
		ev := unix.EpollEvent{Events: watch.events, Fd: int32(kind)}
		if err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, watch.fd, &ev); err != nil {
			w.close()
			return err
		}
	}
	return nil
}

func (w *wakeups) close() {
	_ = owned.Close(w.epoll)
	_ = owned.Close(w.timer)
}

// forget is for numbers that are not ours any more.
func (w *wakeups) forget() {
	owned.Forget(w.epoll)
	owned.Forget(w.timer)
}

// await sleeps for ns from now on, or less; false: it has lost a descriptor, and is of no use.
//
// At first Go's scheduler is not told: it would take our P away, look after that every 20 us, and
// have us fight for one when we are back, which costs more than what we have woken up for. Nor can
// it stop the world meanwhile, so that is for a short time only, and not at all with tell, where
// others have no P.
func (w *wakeups) await(now, ns int64, tell bool) (is bool) {
	if !tell {
		whole := w.set(now, min(ns, quietSleepMaxNs))
		if !w.wait(false) || !whole || ns <= quietSleepMaxNs {
			return !w.lost
		}
		now, ns = now+quietSleepMaxNs, ns-quietSleepMaxNs
	}
	if w.set(now, ns); !w.lost {
		w.wait(true)
	}
	return !w.lost
}

// set has the timer go off after ns from now on, or sooner: false says that it was set before.
func (w *wakeups) set(now, ns int64) (anew bool) {
	if now < w.due && w.due <= now+ns {
		return false
	}
	w.due = now + ns
	// This also takes back that it has gone off.
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))}
	w.lose(unix.TimerfdSettime(w.timer, 0, &at, nil))
	return true
}

// wait sleeps, and says whether the timer alone has ended that. A signal cuts it short, which is
// harmless.
func (w *wakeups) wait(tell bool) (timer bool) {
	var events [wakeKinds]unix.EpollEvent
	var n int
	if tell {
		var err error
		n, err = unix.EpollWait(w.epoll, events[:], -1)
		w.lose(err)
	} else {
		r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.epoll),
			uintptr(unsafe.Pointer(&events)), uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno == 0 {
			n = int(r)
		} else {
			w.lose(errno)
		}
	}
	for i := range events[:max(n, 0)] {
		if events[i].Fd == wakeTimer {
			w.due, timer = 0, n == 1
		}
	}
	return timer
}

// lose notes that a call has failed because its descriptor is something else, or nothing. Nobody
// sleeps then, and who would is not to spin.
func (w *wakeups) lose(err error) {
	if err != nil && err != unix.EINTR {
		w.lost = true
		_ = unix.Nanosleep(&unix.Timespec{Nsec: lostPauseNs}, nil)
	}
}
