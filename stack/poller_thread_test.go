package stack

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// anyCore is a CPU that this process may use.
func anyCore(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	core := 0
	for !set.IsSet(core) {
		core++
	}
	return core
}

// running is a lab whose first Poller runs, until the test ends.
func running(t *testing.T, set func(*Config)) *lab {
	t.Helper()
	l := newLab(t, func(i int, cfg *Config) {
		cfg.Clock = nil
		if i == 0 {
			set(cfg)
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- l.a.Run(context.Background()) }()
	t.Cleanup(func() {
		l.a.Stop()
		require.NoError(t, <-ended)
	})
	return l
}

// What waits for a Poller without a thread of its own runs within a few Turns of what it waited
// for, though Go has no other processor: on the Poller's thread.
func TestWaiterRunsOnThePollersThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := running(t, func(cfg *Config) { cfg.Core = -1 })
	const rounds = 50
	within := 0
	for range rounds {
		var at uint64
		done := make(chan struct{})
		require.NoError(t, l.a.Submit(func() { at = l.a.n.Turns; close(done) }))
		<-done
		if l.a.Turns()-at <= 8 { // twice what package waiting lets go by
			within++
		}
	}
	require.Greater(t, within, rounds/2, "of %d; the others met a tick of the scheduler", rounds)
}

// A Poller that keeps its thread leaves the rest of the program a processor, and gives back what
// was added for it.
func TestOwnThreadLeavesAProcessor(t *testing.T) {
	core := anyCore(t)
	for name, tc := range map[string]struct {
		set  func(*Config)
		want int
	}{
		"shared":     {func(cfg *Config) { cfg.Core = -1 }, 1},
		"pinned":     {func(cfg *Config) { cfg.Core = OnCPU(core) }, 2},
		"spins":      {func(cfg *Config) { cfg.Core, cfg.Idle = -1, IdleSpin }, 2},
		"one thread": {func(cfg *Config) { cfg.Core, cfg.Caps.OneThread = -1, true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.GOMAXPROCS(1)
			defer runtime.GOMAXPROCS(before)
			t.Run("runs", func(t *testing.T) {
				l := running(t, tc.set)
				turned := make(chan struct{})
				require.NoError(t, l.a.Submit(func() { close(turned) }))
				<-turned
				require.Equal(t, tc.want, runtime.GOMAXPROCS(0))
			})
			require.Equal(t, 1, runtime.GOMAXPROCS(0), "after its end")
		})
	}
}

// A processor is added for the rest of the program even where there were fewer meanwhile.
func TestOwnersAreCounted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	first := keepThread()
	require.Equal(t, 4, runtime.GOMAXPROCS(1))
	second := keepThread()
	require.Equal(t, 3, runtime.GOMAXPROCS(0))
	second()
	first()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
}

// Many idle Pollers, more than there are processors, leave these to one that is asked and to who
// waits for it, and polls.
func TestManyIdlePollers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for range 16 {
		running(t, func(cfg *Config) { cfg.Core = -1 })
	}
	l := running(t, func(cfg *Config) { cfg.Core = -1 })
	const rounds = 500
	var late atomic.Bool
	defer time.AfterFunc(5*time.Second, func() { late.Store(true) }).Stop()
	var at atomic.Int64
	for i := int64(1); i <= rounds; i++ {
		require.NoError(t, l.a.Submit(func() { at.Store(i) }))
		for at.Load() < i && !late.Load() {
			runtime.Gosched()
		}
	}
	require.False(t, late.Load(), "%d of %d rounds", at.Load(), rounds)
}
