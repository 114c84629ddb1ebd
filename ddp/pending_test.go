package ddp

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lists that share a memory against sorted slices: each holds what it was given whenever it grows, and
// what it took is there for the others when it is empty.
func TestPendingMemoryOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 200 {
		size := 2 + rng.IntN(40)
		memory := NewPendingMemory(size, 1+rng.IntN(3))
		lists := make([]pendingList, 4)
		oracles := make([][]uint64, len(lists))
		for i := range lists {
			lists[i].init(memory, size+1)
		}
		for range 500 {
			i := rng.IntN(len(lists))
			list, oracle := &lists[i], oracles[i]
			if len(oracle) == size || len(oracle) > 0 && rng.IntN(3) == 0 || len(oracle) > 0 && !list.grows() {
				ref := list.at(0)
				require.Equal(t, oracle[0], ref.end)
				require.Equal(t, uint32(oracle[0]), list.slots[ref.slot].len)
				list.pop()
				oracles[i] = oracle[1:]
				continue
			}
			end := uint64(rng.IntN(60))
			at, dup := slices.BinarySearch(oracle, end)
			m := list.insert(end)
			require.Equal(t, dup, m == nil)
			if !dup {
				m.len = uint32(end)
				oracles[i] = slices.Insert(oracle, at, end)
			}
			require.Equal(t, len(oracles[i]), int(list.count))
			for k, end := range oracles[i] {
				require.Equal(t, end, list.at(uint32(k)).end)
			}
		}
		for i := range lists {
			lists[i].close()
		}
		require.Len(t, memory.free, memory.runs)
		for _, r := range memory.free {
			require.Len(t, r.free, size+1)
		}
	}
}

// As many Streams as there are runs may have messages ahead of a gap at once. Another one has no Room for
// them, and goes on in order, until one of the first has closed its gap or is over.
func TestStreamsShareRoom(t *testing.T) {
	memory := NewPendingMemory(8, 1)
	first, second := newSinkOf(t, 8, memory), newSinkOf(t, 8, memory)
	mr, other := first.register(64), second.register(64)
	require.Equal(t, 8, second.stream.Room())
	first.pos = 100
	first.write(mr, 1, "b", true)
	require.Equal(t, 8, second.stream.Room(), "one alone takes none")
	first.write(mr, 2, "c", true)
	require.Equal(t, 6, first.stream.Room())
	require.Zero(t, second.stream.Room())
	require.True(t, second.stream.Full())
	for i := range uint64(3) {
		second.write(other, i, "x", true)
		second.wantIDs(second.pos, 1000+i)
	}
	first.wantIDs(first.pos, 1001, 1002)
	require.Equal(t, 8, second.stream.Room())

	second.pos += 100
	second.write(other, 4, "x", true)
	second.write(other, 5, "x", true)
	require.Zero(t, first.stream.Room())
	second.stream.Close()
	require.Equal(t, 8, first.stream.Room())
	second.wantIDs(second.pos)
}

// Each of the first Streams finds a run, whatever the others do.
func TestPendingMemoryIsMadeWithStreams(t *testing.T) {
	memory := NewPendingMemory(8, 2)
	require.Zero(t, memory.runs)
	streams := []*sink{newSinkOf(t, 8, memory), newSinkOf(t, 8, memory), newSinkOf(t, 8, memory)}
	require.Equal(t, 2, memory.runs)
	for i, k := range streams {
		mr := k.register(64)
		k.pos = 100
		k.write(mr, 1, "b", true)
		if i < 2 {
			k.write(mr, 2, "c", true)
		}
		require.Equal(t, i < 2, k.stream.Room() > 0)
	}
	streams[0].stream.Close()
	again := newSinkOf(t, 8, memory)
	require.Equal(t, 2, memory.runs)
	require.Equal(t, 8, again.stream.Room())
	require.Panics(t, func() { newSinkOf(t, 9, memory) }, "more than a run has")
}
