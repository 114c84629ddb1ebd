package stack

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Idle says what a Poller does when a turn found no work.
type Idle uint8

const (
	// spin, then yield if that costs little, then sleep up to 50 us: for machines shared with others
	IdleAdaptive Idle = iota
	IdleSpin          // never give up the core
	// never give it up, but tell it to wait: for a core whose other hardware thread computes
	IdlePause
	IdleSleep // spin, then sleep up to 50 us; never yield
	// as IdleAdaptive, but sleep until the device, or a goroutine, has something
	IdleInterrupt
)

// Spinning alone is short: a few microseconds, about what a thread switch costs. Meanwhile other
// goroutines are let in, where the Poller has no thread of its own (poller_thread.go): the
// application that waits for what has come is one, and Go's scheduler gets to it in 200 ns, where
// the kernel needs microseconds. Then yields go to the kernel, for the other end's Poller may share
// our core, and what we wait for is then that it runs. If no other thread wants the core a yield is
// a system call of some 100 ns and polling goes on. A Poller that is alone sleeps on its thread,
// which is exact; one in company as goroutines do, so that the others have the thread: alone, that
// would take a millisecond at least (runtime.netpoll).
//
// Where others compute on our core a yield gives it to all of them in turn: with 30 of them Linux
// 6.18 (EEVDF) came back after 200 ms, 950 ms at most, and 2000 yields took minutes, in which
// every frame waited as long. A sleep of 1 us lasted 2 ms there: a thread that has slept comes
// first. So a yield that took long is not repeated soon. From 6.18 on one such thread is enough:
// a yield gives up the rest of the slice, and comes back with the tick, after 4 ms.
//
// A yield after which another thread has run says that the core is shared, perhaps with the one
// that waits for us. Then spinning only keeps that one waiting. One that computes does not wait
// for us, unless it looks at memory, as programs of verbs do, whose Pollers are under
// IdleInterrupt.
const (
	spinTurns  = 256 // empty turns before the first yield
	spinShared = 4   // where the last yield gave the core to somebody else
	// beside a thread that computes: no yields, so that what takes a little longer finds us awake
	spinBesideNs  = 50_000
	yieldSharedNs = 1500 // a yield that takes longer did
	yieldTurns    = 2000 // yields before the first sleep: a millisecond or less on an idle machine
	yieldLongNs   = 1e6  // a yield that takes longer has given the core to a thread that computes
	yieldShare    = 100  // such yields take at most one part in so many of the time
	letAloneNs    = 400  // a Turn and letIn take less where nobody was let in
	// goroutines that kept the thread for longer than yieldLongNs are let in again after as long, at
	// most this
	letLongMaxNs = 20e6
	goYieldEvery = 4 // every so many empty turns other goroutines may use the P
	sleepMinNs   = 1_000
	sleepMaxNs   = 50_000
	busyTurnsMax = 64 // a busy Poller lets them run this often
	pauseMin     = 4  // PAUSE instructions after an empty turn: 40 to 140 cycles each, by model
	pauseMax     = 64
	// the least: a thread that asks for short slices preempts others when it wakes up (Linux 6.12)
	sliceNs       = 100_000
	timerSlackMin = 1 // ns; the kernel's default of 50 us would double the longest sleep
)

// waiter carries out an Idle policy.
type waiter struct {
	idle  Idle
	empty int   // turns in a row without work
	full  int   // turns with work since the last yield
	since int64 // time of the first of the empty ones
	step  int64

	moves  bool // the Poller has no thread of its own, and lets other goroutines run
	thread int  // the one that was prepared

	brief     bool  // what is waited for is the program's turn: spinning may keep it from that
	shared    bool  // somebody else has run during the last yield
	yielded   bool  // what was done last was a yield
	yieldedAt int64 // when
	yieldFrom int64 // no yield before

	met     int  // times in a row at which somebody ran
	company bool // the last two times
	let     bool // what was done last was letIn
	letAt   int64
	letFrom int64 // not again before
}

// prepare makes the calling thread fit for waiting. It is called before each sleep: the Poller
// may have moved.
func (w *waiter) prepare() {
	if w.thread != 0 && !w.moves {
		return
	}
	if id := unix.Gettid(); id != w.thread {
		w.thread = id
		// Best effort: without it sleeps are longer, nothing else.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackMin, 0, 0, 0)
		if a, err := unix.SchedGetAttr(0, 0); err == nil && a.Policy == unix.SCHED_NORMAL {
			a.Runtime = sliceNs // likewise: without it, one that computes is preempted later
			_ = unix.SchedSetAttr(0, a, 0)
		}
	}
}

// busy is called after a Turn, of time now, that had work.
func (w *waiter) busy(now int64) {
	w.back(now)
	w.empty = 0
	if w.full++; w.full >= busyTurnsMax {
		w.full = 0
		w.letIn(now)
	}
}

// letIn lets other goroutines run on this thread, unless they have kept it for long the last time.
// A Poller that has a thread of its own would have to hand Go's processor over and fetch it again,
// by two other threads: some 20 us.
func (w *waiter) letIn(now int64) bool {
	if !w.moves || now < w.letFrom {
		return false
	}
	w.let, w.letAt = true, now
	runtime.Gosched()
	return true
}

// back takes note of how long what was done last took, if that was a yield or letIn.
func (w *waiter) back(now int64) {
	if w.let {
		w.let = false
		took := now - w.letAt
		if took > letAloneNs {
			w.met++
		} else {
			w.met = 0
		}
		w.company = w.met > 1
		if took > yieldLongNs {
			w.letFrom = now + min(took, letLongMaxNs)
		}
	}
	if !w.yielded {
		return
	}
	took := now - w.yieldedAt
	w.shared = took > yieldSharedNs && (took <= yieldLongNs || w.idle == IdleInterrupt)
	if took > yieldLongNs {
		w.yieldFrom = now + yieldShare*took
	}
	w.yielded = false
}

// wait is called after a Turn, of time now, without work, unless the policy is IdleSpin. Alone it
// returns before deadline, in company up to a millisecond later. It says whether it slept.
func (w *waiter) wait(now, deadline int64) (slept bool) {
	if w.idle == IdlePause {
		w.empty++
		pause(min(pauseMax, pauseMin*int64(w.empty)))
		return false
	}
	d := w.next(now, deadline)
	if w.empty%goYieldEvery == 0 && w.letIn(now) {
		w.yielded = false
		return false // what has just run may have posted something
	}
	switch {
	case d > 0 && w.company:
		time.Sleep(time.Duration(d)) // gives Go's processor to the others
	case d > 0:
		w.prepare()
		ts := unix.NsecToTimespec(d)
		_ = unix.Nanosleep(&ts, nil) // a signal cuts it short, which is harmless
	case d == 0:
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return d > 0
}

// deep says that it is time to sleep until something comes: being woken takes microseconds, which
// is less than any timer does.
func (w *waiter) deep(now int64) bool {
	if w.idle != IdleInterrupt || w.empty < w.spins() {
		return false
	}
	w.back(now)
	return now < w.yieldFrom || w.empty >= w.spins()+yieldTurns
}

// spins is how many empty turns go before anything else.
func (w *waiter) spins() int {
	if w.shared || w.brief {
		return spinShared
	}
	return spinTurns
}

// next decides what follows one more empty turn: -1 spin, 0 yield, else sleep so many ns, not past
// deadline.
func (w *waiter) next(now, deadline int64) int64 {
	w.back(now)
	if w.empty++; w.empty == 1 {
		w.since = now
	}
	switch {
	case w.empty <= w.spins() || now < w.yieldFrom && now-w.since < spinBesideNs &&
		w.idle == IdleAdaptive:
		w.step = sleepMinNs
		return -1
	case w.empty <= w.spins()+yieldTurns && now >= w.yieldFrom && w.idle != IdleSleep:
		w.yielded, w.yieldedAt = true, now
		return 0
	}
	d := min(w.step, deadline-now)
	w.step = min(2*w.step, sleepMaxNs)
	return max(d, 0)
}
