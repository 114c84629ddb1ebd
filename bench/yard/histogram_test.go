package yard

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every value is in the bucket that begins at or before it, and less than a sixteenth before it.
func TestHistogramBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 15, 16, 17, 31, 32, 33, 1000, 1 << 20, 1<<20 + 1, math.MaxInt64} {
		low := uint64(lowest(bucket(v)))
		require.LessOrEqual(t, low, v)
		require.LessOrEqual(t, v-low, v/parts, v)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a, b Histogram
	all := make([]int64, 100_000)
	for i := range all {
		all[i] = int64(rng.ExpFloat64() * 1000)
		if i%2 == 0 {
			a.Add(all[i])
		} else {
			b.Add(all[i])
		}
	}
	a.Merge(&b)
	slices.Sort(all)
	require.EqualValues(t, len(all), a.N())
	require.Equal(t, all[len(all)-1], a.Max())
	for _, q := range []float64{0, 0.5, 0.9, 0.999, 0.99999} {
		want := all[int(q*float64(len(all)))]
		got := a.Quantile(q)
		require.LessOrEqual(t, got, want)
		require.LessOrEqual(t, want-got, want/parts+1, q)
	}
	require.Zero(t, new(Histogram).Quantile(0.5))
}
