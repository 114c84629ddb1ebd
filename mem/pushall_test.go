package mem

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// While the first of a run is missing, none of the others is seen; once it is there, all are.
func TestMPSCRunIsPublishedWhole(t *testing.T) {
	r := NewMPSC(make([]MPSCSlot[int], 8))
	pos := r.tail.Load()
	require.True(t, r.tail.CompareAndSwap(pos, pos+3)) // taken as PushAll does, and suspended
	require.True(t, r.PushAll([]int{4, 5}))
	_, ok := r.Pop()
	require.False(t, ok)
	r.publish(pos, []int{1, 2, 3})
	dst := make([]int, 8)
	require.Equal(t, 5, r.PopN(dst))
	require.Equal(t, []int{1, 2, 3, 4, 5}, dst[:5])
	require.PanicsWithValue(t, "mem: MPSC.PushAll of 9 elements into 8 slots", func() {
		r.PushAll(make([]int, 9))
	})
}

// Several producers push runs of several lengths among single elements: each run comes whole, and
// what was seen of one is seen to its end without waiting.
func TestMPSCRunsOfManyGoroutines(t *testing.T) {
	type item struct {
		producer, number, at, of int
		// to copy it takes long enough for the consumer to look in between
		_ [256]uint64
	}
	const producers = 4
	r := NewMPSC(make([]MPSCSlot[item], 16))
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			var run [5]item
			for i := 0; i < ringRounds/producers; {
				k := 1 + (i+p)%len(run)
				for j := range k {
					run[j].producer, run[j].number, run[j].at, run[j].of = p, i, j, k
				}
				if k == 1 && r.Push(run[0]) || k > 1 && r.PushAll(run[:k]) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [producers]int
	for got := 0; got < ringRounds; got++ {
		v, ok := r.Pop()
		for ; !ok; v, ok = r.Pop() {
			runtime.Gosched()
		}
		mustEqual(t, uint64(next[v.producer]), uint64(v.number))
		next[v.producer]++
		for j := range v.of {
			if v.at != j {
				t.Fatalf("element %d of %d of a run, %d was due", v.at, v.of, j)
			}
			if j == v.of-1 {
				break
			}
			was := v
			if v, ok = r.Pop(); !ok || v.producer != was.producer || v.number != was.number {
				t.Fatalf("element %d of run %d of producer %d was followed by %d of %d of %d (%v)", was.at,
					was.number, was.producer, v.at, v.number, v.producer, ok)
			}
		}
	}
	wg.Wait()
	require.Zero(t, r.Len())
}

// What the consumer has given back is the producers' at once, whichever of them last looked where
// the consumer stands.
func TestMPSCFullByWhatTheConsumerHasTaken(t *testing.T) {
	r := NewMPSC(make([]MPSCSlot[int], 4))
	for lap := range 10 {
		require.True(t, r.PushAll([]int{lap, lap, lap}))
		require.False(t, r.PushAll([]int{0, 0}), "one is free")
		require.True(t, r.Push(lap))
		require.False(t, r.Push(0), "full")
		v := -1
		require.True(t, r.Take(&v))
		require.Equal(t, lap, v)
		require.Equal(t, 4, r.Len())
		require.False(t, r.Push(0), "taken and not released")
		r.Release()
		require.Equal(t, 3, r.Len())
		require.True(t, r.Push(lap))
		require.False(t, r.Push(0), "full again")
		require.Equal(t, 4, r.PopN(make([]int, 5)))
		v = -1
		require.False(t, r.Take(&v))
		require.Equal(t, -1, v, "left alone")
	}
}
