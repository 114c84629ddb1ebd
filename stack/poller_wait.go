package stack

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/waiting"
)

// Idle says what a Poller does when a Turn found no work.
type Idle = waiting.Policy

// The policies (package waiting says when each does what).
const (
	// IdleAdaptive spins, then yields if that costs little, then sleeps up to 50 us: for machines
	// shared with others.
	IdleAdaptive = waiting.Adaptive
	// IdleSpin never gives up the core.
	IdleSpin = waiting.Spin
	// IdlePause never gives it up, but tells it to wait: for a core whose other hardware thread
	// computes.
	IdlePause = waiting.Pause
	// IdleSleep spins for 50 us, then sleeps up to 50 us. It never yields.
	IdleSleep = waiting.Sleep
	// IdleInterrupt is IdleAdaptive, but sleeps until the device, or a goroutine, has something.
	IdleInterrupt = waiting.Interrupt
)

const (
	pauses        = 16 // PAUSE instructions after an empty Turn: 40 to 140 cycles each, by model
	timerSlackMin = 1  // ns; the kernel's default of 50 us would double the longest sleep
)

// runner carries out between Turns what package waiting says.
type runner struct {
	p        *Poller
	wait     *waiting.Poller
	thread   int     // the one that was prepared
	crowded  *uint32 // Bell.Crowded, or nil
	told     bool    // what it says
	turn     func() int
	deadline func(maxNs int64) (now, at int64) // both made once: each is an allocation
}

// newRunner is p's. shares says that p has no thread of its own.
func newRunner(p *Poller, shares bool) *runner {
	r := &runner{p: p, wait: waiting.NewPoller(p.cfg.Idle, shares, p.cfg.Bell != nil), turn: p.Turn}
	if p.cfg.Bell != nil {
		r.crowded = p.cfg.Bell.Crowded
	}
	r.deadline = func(maxNs int64) (now, at int64) {
		at = p.deadline()
		p.sleeps(min(at, p.now+maxNs))
		return p.now, at
	}
	return r
}

// after spins, gives way or sleeps after a Turn that has found so much work.
func (r *runner) after(work int) {
	p := r.p
	next := r.wait.After(waiting.Turned{
		Now: p.now, Work: work > 0, Arrivals: p.rx.arrivals, Asked: p.tx.asked,
		Frames: p.n.RxFrames,
	})
	r.tellCrowded()
	if p.stopped {
		return
	}
	switch next.Step {
	case waiting.Relax:
		pause(pauses)
	case waiting.Let:
		runtime.Gosched()
	case waiting.Yield:
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	case waiting.Nap:
		r.nap(next)
	case waiting.Doze:
		r.prepare()
		slept, rung := p.rouser.Sleep(r.turn, r.deadline, next.Company, next.Ns)
		if slept {
			p.n.Sleeps++
		}
		r.wait.Dozed(slept, rung)
	}
}

// nap sleeps, not past the deadline. Alone that is exact; in company it may take a millisecond
// longer.
func (r *runner) nap(next waiting.Next) {
	p := r.p
	until := min(p.deadline(), p.now+next.Ns)
	d := until - p.now
	if d <= 0 {
		return
	}
	p.sleeps(until)
	p.n.Sleeps++
	if next.Company {
		time.Sleep(time.Duration(d)) // gives Go's processor to the others
		return
	}
	r.prepare()
	ts := unix.NsecToTimespec(d)
	_ = unix.Nanosleep(&ts, nil) // a signal cuts it short, which is harmless
}

// prepare makes the calling thread fit for short sleeps, before each: the Poller may have moved.
func (r *runner) prepare() {
	if id := unix.Gettid(); id != r.thread {
		r.thread = id
		// Best effort: without it sleeps are longer, nothing else.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlackMin, 0, 0, 0)
	}
}

// tellCrowded tells the program whether the Poller has to share its core.
func (r *runner) tellCrowded() {
	if r.crowded == nil {
		return
	}
	yes := r.wait.Crowded(r.p.now)
	if yes == r.told {
		return
	}
	r.told = yes
	word := uint32(0)
	if yes {
		word = 1
	}
	atomic.StoreUint32(r.crowded, word)
}
