package switchd

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
)

// What a thread does without work, as package stack's Pollers do: it spins, yields for as long as
// that costs little, and sleeps longer and longer.
const (
	spinTurns  = 256
	yieldTurns = 2000
	yieldLong  = time.Millisecond // a yield that takes longer has given the CPU to another thread
	yieldShare = 100              // such yields take one part in so many of the time
	sleepMin   = time.Microsecond
	sleepMax   = 50 * time.Microsecond
	goEvery    = 1024 // turns after which other goroutines may run
)

// pin binds the calling thread, which is locked, to a CPU.
func pin(cpu int) error {
	if cpu == port.NoCore {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to CPU %d: %w", cpu, err)
	}
	return nil
}

// labelOf is the label of the goroutine of a core, by which the watchdog finds where it stands.
func labelOf(core int) string { return fmt.Sprintf("switch %d", core) }

func labelled(core int, do func()) {
	pprof.Do(context.Background(), pprof.Labels(port.PollerLabel, labelOf(core)),
		func(context.Context) { do() })
}

// turn turns a core until over is closed. The calling goroutine has its thread for itself.
func turn(c *vswitch.Core, spin bool, over <-chan struct{}) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it sleeps are longer, nothing else
	began := time.Now()
	empty, step := 0, sleepMin
	var yieldFrom time.Duration
	for turns := 0; ; turns++ {
		now := time.Since(began)
		n := c.Turn(int64(now) + 1) // not 0, which is no time
		if turns%goEvery == 0 {
			select {
			case <-over:
				return
			default:
			}
			runtime.Gosched()
		}
		if n > 0 || spin {
			empty, step = 0, sleepMin
			continue
		}
		switch empty++; {
		case empty <= spinTurns:
		case empty <= spinTurns+yieldTurns && now >= yieldFrom:
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			if back := time.Since(began); back-now > yieldLong {
				yieldFrom = back + yieldShare*(back-now)
			}
		default:
			ts := unix.NsecToTimespec(int64(step))
			_ = unix.Nanosleep(&ts, nil) // a signal cuts it short, which is harmless
			step = min(2*step, sleepMax)
		}
	}
}
