package stack

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdaptiveSpinsYieldsSleeps(t *testing.T) {
	w := waiter{idle: IdleAdaptive}
	for range spinTurns {
		require.Equal(t, int64(-1), w.next(0, math.MaxInt64))
	}
	for range yieldTurns {
		require.Equal(t, int64(0), w.next(0, math.MaxInt64))
	}
	last := int64(0)
	for range 20 {
		d := w.next(0, math.MaxInt64)
		require.Greater(t, d, int64(0))
		require.GreaterOrEqual(t, d, last)
		require.LessOrEqual(t, d, int64(sleepMaxNs))
		last = d
	}
	require.Equal(t, int64(sleepMaxNs), last)
	require.Equal(t, int64(700), w.next(1000, 1700), "never past the deadline")
	require.Equal(t, int64(0), w.next(1000, 900), "a deadline that has passed is no reason to sleep")
	w.busy(2000)
	require.Equal(t, int64(-1), w.next(0, math.MaxInt64), "work begins it again")
}

// A yield from which the core came back late is the last for a hundred times as long, whether it
// ended with work or without: until then the Poller sleeps, and comes back soon.
func TestAdaptiveDoesNotYieldToThoseWhoCompute(t *testing.T) {
	for name, resume := range map[string]func(w *waiter, now int64){
		"with work":    (*waiter).busy,
		"without work": func(w *waiter, now int64) { w.next(now, math.MaxInt64) },
	} {
		t.Run(name, func(t *testing.T) {
			w := waiter{idle: IdleAdaptive}
			first := func(now int64) int64 { // what follows the spins
				_, d := spin(t, &w, now)
				return d
			}
			require.Zero(t, first(0))
			w.busy(yieldLongNs)
			require.Zero(t, first(yieldLongNs), "others may take a little")
			now := int64(200 * yieldLongNs)
			resume(&w, now)
			w.busy(now)
			until := now + yieldShare*(now-yieldLongNs)
			require.Equal(t, int64(sleepMinNs), first(until-2*spinBesideNs))
			w.busy(until)
			require.Zero(t, first(until))
		})
	}
}

// spin spins from now on, a turn of 100 ns after the other, and returns for how long, and what
// follows.
func spin(t *testing.T, w *waiter, now int64) (ns, d int64) {
	for d = w.next(now, math.MaxInt64); d == -1; d = w.next(now+ns, math.MaxInt64) {
		ns += 100
		require.Less(t, ns, int64(2*spinBesideNs))
	}
	return ns, d
}

// A thread that computes on a Poller's core does not wait for it: what the Poller waits for is on
// another core, and it spins for that, longer than usual, before it sleeps. One that never yields
// does not.
func TestAdaptiveSpinsBesideThoseWhoCompute(t *testing.T) {
	w := waiter{idle: IdleAdaptive}
	ns, d := spin(t, &w, 0)
	require.Equal(t, []int64{100 * spinTurns, 0}, []int64{ns, d}, "a yield")
	now := int64(4 * yieldLongNs)
	w.busy(now)
	ns, d = spin(t, &w, now)
	require.Equal(t, []int64{spinBesideNs, sleepMinNs}, []int64{ns, d})

	w = waiter{idle: IdleSleep}
	ns, d = spin(t, &w, 0)
	require.Equal(t, []int64{100 * spinTurns, sleepMinNs}, []int64{ns, d})
}

// If another thread ran during the last yield a Poller does not spin before the next, and one that
// may sleep until it is interrupted does so at once where that was a thread that computes.
func TestSharedCoreEndsSpinning(t *testing.T) {
	w := waiter{idle: IdleInterrupt}
	spins := func(now int64) (n int) {
		for ; !w.deep(now) && w.next(now, math.MaxInt64) == -1; n++ {
			require.Less(t, n, 2*spinTurns)
		}
		return n
	}
	require.Equal(t, spinTurns, spins(0))
	w.busy(yieldSharedNs)
	require.Equal(t, spinTurns, spins(yieldSharedNs), "alone")
	now := int64(3 * yieldSharedNs)
	w.busy(now)
	require.Equal(t, spinShared, spins(now))
	now += 4 * yieldLongNs
	w.busy(now)
	require.Equal(t, spinShared, spins(now))
	require.True(t, w.deep(now))
	now += yieldShare * 4 * yieldLongNs
	require.False(t, w.deep(now), "it is tried again")
}

// A Poller that always has work lets others run at each busyTurnsMax-th Turn; one without leaves
// the count to begin again only then.
func TestBusyLetsOthersIn(t *testing.T) {
	w := waiter{moves: true}
	for round := range 3 {
		for n := 1; n <= busyTurnsMax; n++ {
			w.let = false
			w.busy(int64(round*100 + n))
			require.Equal(t, n == busyTurnsMax, w.let, "%d in round %d", n, round)
		}
	}
}
