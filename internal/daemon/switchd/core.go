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
	"github.com/rnicd/rnicd/internal/waiting"
)

// goEvery is how many turns go before other goroutines may run.
const goEvery = 1024

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
	policy := waiting.Adaptive
	if spin {
		policy = waiting.Spin
	}
	wait, began := waiting.NewPoller(policy, false, false), time.Now()
	for turns := 0; ; turns++ {
		now := int64(time.Since(began)) + 1 // not 0, which is no time
		work := c.Turn(now) > 0
		if turns%goEvery == 0 {
			select {
			case <-over:
				return
			default:
			}
			runtime.Gosched()
		}
		switch next := wait.After(waiting.Turned{Now: now, Work: work}); next.Step {
		case waiting.Yield:
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case waiting.Nap:
			ts := unix.NsecToTimespec(next.Ns)
			_ = unix.Nanosleep(&ts, nil) // a signal cuts it short, which is harmless
		}
	}
}
