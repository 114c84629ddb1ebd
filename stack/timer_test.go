package stack

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oracle is a plain array; arm keeps the earlier of two times, as documented.
func TestTimersAgainstArray(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 2))
	const n = 50
	h := newTimers(n)
	oracle := make([]int64, n)
	for i := range oracle {
		oracle[i] = math.MaxInt64
	}
	for step := range 20_000 {
		c := r.IntN(n)
		if r.IntN(3) == 0 {
			h.remove(connIndex(c))
			oracle[c] = math.MaxInt64
		} else {
			at := r.Int64N(1000)
			h.arm(connIndex(c), at)
			oracle[c] = min(oracle[c], at)
		}
		first := int64(math.MaxInt64)
		for _, at := range oracle {
			first = min(first, at)
		}
		require.Equal(t, first, h.first(), "seed %d step %d", seed, step)
	}
	last := int64(0)
	for len(h.heap) > 0 { // what is left comes out in order
		e := h.heap[0]
		require.GreaterOrEqual(t, e.at, last, "seed %d", seed)
		require.Equal(t, oracle[e.conn], e.at)
		last = e.at
		h.remove(e.conn)
	}
}

func TestTimersNever(t *testing.T) {
	h := newTimers(1)
	h.arm(0, math.MaxInt64)
	require.Empty(t, h.heap)
	require.Equal(t, int64(math.MaxInt64), h.first())
}
