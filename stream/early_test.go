package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/mem"
)

// Runs of a stream, in any order: the list gives them back in the stream's.
func TestEarlyListIsInStreamOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 64
		pool, err := mem.NewPool(heapArena(n), mem.PoolConfig{Bufs: n, Stride: 256, Headroom: 64})
		require.NoError(t, err)
		ps := &pollerState{pool: pool, pieces: make([]piece, n)}
		list := noEarly
		lens := rapid.SliceOfN(rapid.IntRange(1, 40), 1, n).Draw(t, "runs")
		var at []uint64
		var stream []byte
		for _, k := range lens {
			at = append(at, uint64(len(stream)))
			for range k {
				stream = append(stream, byte(len(stream)))
			}
		}
		order := rapid.Permutation(indices(len(lens))).Draw(t, "order")
		merging := rapid.Bool().Draw(t, "merging")
		for _, i := range order {
			data := stream[at[i]:][:lens[i]]
			if merging && ps.merge(&list, at[i], data) {
				continue
			}
			b := pool.Alloc()
			ps.kept++
			copy(pool.Slot(b)[10:], data)
			ps.insert(&list, b, at[i], 10, uint32(lens[i]))
		}
		var got []byte
		for list.n > 0 {
			b, p := ps.pop(&list)
			require.Equal(t, uint64(len(got)), p.at)
			got = append(got, pool.Slot(b)[p.off:p.off+p.n]...)
			ps.free(b)
		}
		require.Equal(t, stream, got)
		require.Equal(t, noEarly, list)
		require.Equal(t, n, pool.Available())
		require.Zero(t, ps.kept)
	})
}

func indices(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
