package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A bucket gives a second's worth at once, and then no more than its rate.
func TestBucket(t *testing.T) {
	b := NewBucket(0, 100)
	take := func(now int64) (n int) {
		for b.Take(now) {
			n++
		}
		return n
	}
	require.Equal(t, 100, take(0), "a burst of a second's worth")
	require.Equal(t, 0, take(9_999_999))
	require.Equal(t, 1, take(10_000_000), "then one per 10 ms")
	require.Equal(t, 50, take(510_000_000))
	require.Equal(t, 100, take(1e12), "never more than the burst")

	// Asked more often than a token takes to grow, it still grows them.
	b = NewBucket(0, 100)
	take(0)
	got := 0
	for now := int64(0); now <= 1e9; now += 1_000_000 {
		if b.Take(now) {
			got++
		}
	}
	require.InDelta(t, 100, got, 1)
}
