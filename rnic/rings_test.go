package rnic

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
)

// Queues lie in the Adapter's arena while there is room, then on the heap, and work alike.
func TestRingsInArena(t *testing.T) {
	for name, size := range map[string]int{"room": 1 << 20, "room for little": 68 << 10,
		"no room": 0} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range both {
				arena := hugepages.Heap(size)
				r := newRig(t, kind, rigConfig{server: Config{Arena: arena}})
				s, c := r.connect(opts{}, opts{})
				before := bytes.Clone(arena.Bytes())
				r.exchange(s, c)
				require.Equal(t, size > 0, !bytes.Equal(before, arena.Bytes()),
					"the arena's octets have changed")
				r.close(s, c)
			}
		})
	}
}

// The memory of a queue is used again when no goroutine holds the queue, and not earlier.
func TestRingMemoryComesBack(t *testing.T) {
	arena := hugepages.Heap(64 << 10)
	a := must(Open(Config{Arena: arena}))
	held := must(a.CreateCQ(64))
	for range 200 { // far more than the arena holds at once
		q := must(a.CreateCQ(64))
		require.True(t, q.q.Reserve(1))
		q.q.Push(Completion{ID: 1})
	}
	returned := func() (n int) {
		a.rings.mu.Lock()
		defer a.rings.mu.Unlock()
		for _, list := range a.rings.free {
			n += len(list)
		}
		return n
	}
	for range 1000 {
		if returned() > 0 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	require.Positive(t, returned(), "pieces given back")
	q := must(a.CreateCQ(64))
	require.Zero(t, q.Poll(make([]Completion, 4)), "a used piece makes an empty queue")
	before := bytes.Clone(arena.Bytes())
	require.True(t, q.q.Reserve(1))
	q.q.Push(Completion{ID: 5})
	require.NotEqual(t, before, arena.Bytes(), "the queue does not lie in the arena")
	require.True(t, held.q.Reserve(1))
	held.q.Push(Completion{ID: 9})
	var c [1]Completion
	require.Equal(t, 1, held.Poll(c[:]))
	require.Equal(t, uint64(9), c[0].ID)
}

// Rings in memory that was used before are empty.
func TestRingsInUsedMemory(t *testing.T) {
	memory := hugepages.Heap(256 << 10)
	for at := 0; at < len(memory.Bytes()); at += 8 {
		// as the first slot of a ring has when it is full
		binary.NativeEndian.PutUint64(memory.Bytes()[at:], 1)
	}
	a := must(Open(Config{Arena: hugepages.Over(memory.Bytes(), hugepages.Normal)}))
	t.Cleanup(func() { require.NoError(t, a.Close(context.Background())) })
	cq := must(a.CreateCQ(64))
	q := must(a.CreateQP(QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq}))
	require.Zero(t, cq.Poll(make([]Completion, 4)))
	_, sends := q.sq.Pop()
	_, recvs := q.rq.Pop()
	require.Equal(t, []bool{false, false}, []bool{sends, recvs})
}
