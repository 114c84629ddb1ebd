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

// What waits for a Poller without a thread of its own runs within a few Turns of what it waited for,
// though Go has no other processor: on the Poller's thread.
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
		if l.a.Turns()-at <= goYieldAlone+goYieldEvery {
			within++
		}
	}
	require.Greater(t, within, rounds/2, "of %d; the others met a tick of the scheduler", rounds)
}

// A Poller that keeps its thread leaves the rest of the program a processor, and gives back what was
// added for it.
func TestOwnThreadLeavesAProcessor(t *testing.T) {
	core := anyCore(t)
	for name, tc := range map[string]struct {
		set  func(*Config)
		want int
	}{
		"shared":     {func(cfg *Config) { cfg.Core = -1 }, 1},
		"pinned":     {func(cfg *Config) { cfg.Core = core }, 2},
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

// lets is a waiter for which whoever is let in runs for *took.
func lets(idle Idle, took *int64) waiter {
	now := int64(1)
	return waiter{idle: idle, moves: true, clock: func() int64 {
		t := now
		now += *took
		return t
	}}
}

// once is a waiter whose first look takes so long, and those after it nothing.
func once(idle Idle, took int64) waiter {
	w := lets(idle, &took)
	clock, reads := w.clock, 0
	w.clock = func() int64 {
		if reads++; reads > 2 {
			took = 0
		}
		return clock()
	}
	return w
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

// Goroutines that compute when they are let in, twice, are left to Go's scheduler for ten times as
// long.
func TestLetsNoneInThatComputes(t *testing.T) {
	took := int64(yieldLongNs)
	w := lets(IdleAdaptive, &took)
	require.True(t, w.letIn(0))
	require.True(t, w.letIn(0), "they took a little")
	took = int64(10 * time.Millisecond)
	require.True(t, w.letIn(0))
	require.False(t, w.letIn(letShare*took-1))
	require.True(t, w.letIn(letShare*took))
	took = int64(time.Minute)
	w = lets(IdleAdaptive, &took)
	require.True(t, w.letIn(0))
	require.False(t, w.letIn(letShare*letLongMaxNs-1))
	require.True(t, w.letIn(letShare*letLongMaxNs), "no longer than Go lets a goroutine compute")

	away := once(IdleAdaptive, int64(10*time.Millisecond))
	require.True(t, away.letIn(0))
	require.True(t, away.letIn(0), "the core was away")

	own := waiter{idle: IdleAdaptive}
	require.False(t, own.letIn(0), "it has the thread for itself")
}

// A Poller has company if others ran at both of the last looks. Each is made twice: the first time
// may be slow for other reasons.
func TestCompany(t *testing.T) {
	for name, tc := range map[string]struct {
		took    int64
		company bool
	}{
		"alone": {letAloneNs, false}, "company": {letAloneNs + 1, true}, "for long": {yieldLongNs, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := lets(IdleInterrupt, &tc.took)
			require.True(t, w.letIn(0))
			require.False(t, w.company)
			require.True(t, w.letIn(0))
			require.Equal(t, tc.company, w.company)
		})
	}
	w := once(IdleInterrupt, letAloneNs+1)
	require.True(t, w.letIn(0))
	require.True(t, w.letIn(0))
	require.Zero(t, w.met)
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
