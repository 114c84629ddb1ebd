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
		pool := must(mem.NewPool(heapArena(n), mem.PoolConfig{Bufs: n, Stride: 256, Headroom: 64}))(t)
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

// What a segment ahead of a gap costs depends on the runs beyond it, and not on how long they are:
// octet by octet, downwards before a run of n Bufs, it is one step each.
func TestEarlyListStepsOverRuns(t *testing.T) {
	for _, n := range []int{64, 1024} {
		pool, err := mem.NewPool(heapArena(4*n), mem.PoolConfig{Bufs: 4 * n, Stride: 256, Headroom: 64})
		require.NoError(t, err)
		ps := &pollerState{pool: pool, pieces: make([]piece, 4*n)}
		list := noEarly
		put := func(at uint64, k uint32) { ps.insert(&list, pool.Alloc(), at, 0, k) }
		const far = 1 << 20
		for i := range uint64(n) {
			put(far+100*i, 100)
		}
		require.Zero(t, ps.stepped, "in order of arrival nothing is passed")
		for i := range uint64(n / 2) {
			put(far-1-i, 1)
			put(2*i, 1) // never a run: each is passed by those that follow only
		}
		require.LessOrEqual(t, ps.stepped, uint64(n))

		// Merged octets close a gap between two runs, and make one of them.
		list2 := noEarly
		ps.insert(&list2, pool.Alloc(), 10, 0, 2)
		ps.insert(&list2, pool.Alloc(), 14, 0, 2)
		require.True(t, ps.merge(&list2, 12, make([]byte, 2)))
		before := ps.stepped
		ps.insert(&list2, pool.Alloc(), 5, 0, 1)
		require.Equal(t, before+1, ps.stepped)
		for at := uint64(0); list.n > 0; {
			_, p := ps.pop(&list)
			require.GreaterOrEqual(t, p.at, at)
			at = p.end()
		}
	}
}

func indices(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
