package stack

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Idle says what a Poller does when a turn found no work.
type Idle uint8

const (
	IdleAdaptive Idle = iota // spin, then yield, then sleep up to 50 us: for machines shared with others
	IdleSpin                 // never give up the core
)

// Spinning alone is short: a few microseconds, about what a thread switch costs. Yields go to the kernel too, for the
// other end's Poller may share our core, and what we wait for is then that it runs. Where nobody else wants the core a
// yield is a system call of some 100 ns and polling goes on.
const (
	spinTurns     = 256  // empty turns before the first yield
	yieldTurns    = 2000 // yields before the first sleep: a millisecond or less on an idle machine
	goYieldEvery  = 16   // every so many yields Go's own scheduler may use the P
	sleepMinNs    = 1_000
	sleepMaxNs    = 50_000
	busyTurnsMax  = 1024 // adaptive: a busy Poller lets other goroutines run this often
	timerSlackMin = 1    // ns; the kernel's default of 50 us would double the longest sleep
)

// waiter carries out an Idle policy.
type waiter struct {
	idle  Idle
	empty int // turns in a row without work
	full  int // turns with work since the last yield
	step  int64
}

// prepare is called once on the thread that will wait.
func (w *waiter) prepare() {
	if w.idle == IdleAdaptive {
		// Best effort: without it sleeps are longer, nothing else.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackMin, 0, 0, 0)
	}
}

func (w *waiter) busy() {
	w.empty = 0
	if w.full++; w.full >= busyTurnsMax && w.idle == IdleAdaptive {
		w.full = 0
		runtime.Gosched()
	}
}

// wait is called after a Turn without work.
func (w *waiter) wait(p *Poller) {
	if w.idle == IdleSpin {
		return
	}
	if d := w.next(p.now, p.Deadline()); d > 0 {
		p.n.Sleeps++
		ts := unix.NsecToTimespec(d)
		_ = unix.Nanosleep(&ts, nil) // a signal cuts it short, which is harmless
	} else if d == 0 {
		if w.empty%goYieldEvery == 0 {
			runtime.Gosched()
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// next decides what follows one more empty turn: -1 spin, 0 yield, else sleep so many ns, not past deadline.
func (w *waiter) next(now, deadline int64) int64 {
	w.empty++
	switch {
	case w.empty <= spinTurns:
		return -1
	case w.empty <= spinTurns+yieldTurns:
		w.step = sleepMinNs
		return 0
	}
	d := min(w.step, deadline-now)
	w.step = min(2*w.step, sleepMaxNs)
	return max(d, 0)
}
