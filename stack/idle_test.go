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
	w.busy()
	require.Equal(t, int64(-1), w.next(0, math.MaxInt64), "work begins it anew")
}
