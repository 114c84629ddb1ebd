package perf

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The peak is the one that perftest's search of all pairs finds.
func TestBestOfAllPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x times
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			now += rapid.Int64Range(1, 1000).Draw(t, "pause")
			x.posted = append(x.posted, now)
			done := now + rapid.Int64Range(1, 3000).Draw(t, "takes")
			if n := len(x.completed); n > 0 {
				done = max(done, x.completed[n-1])
			}
			x.completed = append(x.completed, done)
		}
		want := math.Inf(1)
		for i := range x.posted {
			for j := i; j < len(x.completed); j++ {
				want = min(want, float64(x.completed[j]-x.posted[i])/float64(j-i+1))
			}
		}
		if got := x.best(); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("best %v, want %v", got, want)
		}
	})
	require.Zero(t, (&times{}).best())
}

// Quantiles of known times, of half of them, and of none.
func TestLatencies(t *testing.T) {
	h := newHistogram()
	require.Zero(t, h.latencies(2))
	for i := range int64(1000) {
		h.record((i + 1) * 2000)
	}
	got := h.latencies(2)
	for _, c := range []struct {
		name      string
		got, want time.Duration
	}{
		{"min", got.Min, 1000}, {"median", got.Median, 500_000}, {"average", got.Average, 500_500},
		{"stdev", got.Stdev, 288_675},
		{"p99", got.P99, 990_000}, {"p99.9", got.P999, 999_000}, {"max", got.Max, 1_000_000},
	} {
		require.InEpsilon(t, float64(c.want), float64(c.got), 2e-3, c.name)
	}

	one := newHistogram()
	one.record(1_234_567)
	require.Equal(t, Latencies{Min: 1_234_567, Median: 1_234_567, Average: 1_234_567, P99: 1_234_567,
		P999: 1_234_567, Max: 1_234_567}, one.latencies(1))

	h.record(-5)
	h.record(int64(time.Hour))
	require.Positive(t, h.latencies(1).Min)
	require.LessOrEqual(t, h.latencies(1).Max, 61*time.Second)
}
