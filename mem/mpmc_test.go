package mem

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMPMCSizesRefused(t *testing.T) {
	for _, n := range []int{0, 1, 3, 6, 100} {
		require.Panics(t, func() { NewMPMC(make([]MPMCSlot[int], n)) })
	}
}

// oneByOne gives an MPMC the PopN of the other rings, for queueModel.
type oneByOne struct{ *MPMC[int] }

func (r oneByOne) PopN(dst []int) (n int) {
	for n < len(dst) {
		v, ok := r.Pop()
		if !ok {
			break
		}
		dst[n] = v
		n++
	}
	return n
}

func TestMPMCAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(1, 4).Draw(t, "log2 size")
		m := &queueModel{ring: oneByOne{NewMPMC(make([]MPMCSlot[int], size))}, size: size, next: 1}
		t.Repeat(m.actions())
	})
}

// A producer that is suspended with a position in hand hides what comes after it; a consumer that
// is hides nothing, but its slot is not free.
func TestMPMCSuspended(t *testing.T) {
	r := NewMPMC(make([]MPMCSlot[int], 2))
	pos := r.tail.Load()
	require.True(t, r.tail.CompareAndSwap(pos, pos+1))
	require.True(t, r.Push(2))
	_, ok := r.Pop()
	require.False(t, ok)
	r.slots[pos&r.mask].val = 1
	r.slots[pos&r.mask].seq.Store(pos + 1)

	pos = r.head.Load()
	require.True(t, r.head.CompareAndSwap(pos, pos+1)) // one consumer stops here
	v, ok := r.Pop()
	require.True(t, ok)
	require.Equal(t, 2, v)
	require.False(t, r.Push(3), "the slot is still in somebody's hand")
	require.Equal(t, 1, r.take(&r.slots[pos&r.mask], pos))
	require.True(t, r.Push(3))
	require.Equal(t, 1, r.Len())
}

func TestMPMCForgetsPointers(t *testing.T) {
	r := NewMPMC(make([]MPMCSlot[*int], 4))
	for range 3 {
		require.True(t, r.Push(new(int)))
	}
	for range 3 {
		_, ok := r.Pop()
		require.True(t, ok)
	}
	for i := range r.slots {
		require.Nil(t, r.slots[i].val)
	}
}

// Goroutines on both sides: every element comes out once, and those of one producer in its order at
// any one consumer.
func TestMPMCGoroutines(t *testing.T) {
	const producers, consumers, each = 3, 3, 20_000
	r := NewMPMC(make([]MPMCSlot[uint64], 8))
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(producers * each)
	for p := range uint64(producers) {
		wg.Go(func() {
			for i := uint64(0); i < each; {
				if r.Push(p<<32 | i) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var got [consumers][]uint64
	for c := range consumers {
		wg.Go(func() {
			for left.Load() > 0 {
				v, ok := r.Pop()
				if !ok {
					runtime.Gosched()
					continue
				}
				got[c] = append(got[c], v)
				left.Add(-1)
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, mine := range got {
		var last [producers]int64
		for _, v := range mine {
			require.False(t, seen[v], "%x twice", v)
			seen[v] = true
			p, i := v>>32, int64(v&0xffffffff)
			require.GreaterOrEqual(t, i, last[p])
			last[p] = i
		}
	}
	require.Len(t, seen, producers*each)
	require.Zero(t, r.Len())
}

// Serialized producers and a counter after their Push: a consumer that has taken one off the
// counter finds an element, whatever the other consumers are at.
func TestMPMCWithCounter(t *testing.T) {
	const producers, consumers, each = 3, 3, 10_000
	r := NewMPMC(make([]MPMCSlot[int], 4))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var there, missed atomic.Int64
	var left atomic.Int64
	left.Store(producers * each)
	for range producers {
		wg.Go(func() {
			for i := 0; i < each; {
				mu.Lock()
				ok := r.Push(i)
				mu.Unlock()
				if ok {
					there.Add(1)
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			for left.Load() > 0 {
				n := there.Load()
				if n == 0 || !there.CompareAndSwap(n, n-1) {
					runtime.Gosched()
					continue
				}
				if _, ok := r.Pop(); !ok {
					missed.Add(1)
				}
				left.Add(-1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, missed.Load())
}
