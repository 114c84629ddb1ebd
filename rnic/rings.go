package rnic

import (
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// ringStore gives queues their memory: from the Adapter's arena when there is one, so that rings
// lie on hugepages (and can be shared with another process), else from the heap. Pieces are powers
// of two and are used again for the next queue of their size, but only once no goroutine can hold
// the old queue any more: a posting call may come late.
type ringStore struct {
	mu    sync.Mutex
	arena *hugepages.Arena
	free  map[int][][]byte
}

const ringAlign = 64

// takeRing makes ring, a part of owner, one of n slots.
func takeRing[T any, O any](s *ringStore, owner *O, ring *mem.MPSC[T], n int) *mem.MPSC[T] {
	ring.InitZero(takeSlots[mem.MPSCSlot[T]](s, owner, n))
	return ring
}

// takeRings makes the rings of a QueuePair, in one piece.
func (s *ringStore) takeRings(q *QueuePair, sends, recvs int) {
	slots := takeSlots[mem.MPSCSlot[wq.WQE]](s, q, sends+recvs)
	q.sq.InitZero(slots[:sends:sends])
	q.rq.InitZero(slots[sends:])
}

// takeSlots is the backing of rings of n slots together that lives as long as owner. It is zero.
func takeSlots[S any, O any](s *ringStore, owner *O, n int) []S {
	var slot S
	b := s.take(1 << bits.Len(uint(n*int(unsafe.Sizeof(slot))-1)))
	if b == nil {
		return make([]S, n)
	}
	runtime.AddCleanup(owner, s.give, b)
	return mem.View[S](b, n)
}

// take returns size octets, all 0, or nil when the arena is used up or absent: the heap then
// serves as well.
func (s *ringStore) take(size int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena == nil {
		return nil
	}
	if list := s.free[size]; len(list) > 0 {
		b := list[len(list)-1]
		s.free[size] = list[:len(list)-1]
		clear(b)
		return b
	}
	b, err := s.arena.Carve(size, ringAlign)
	if err != nil {
		return nil
	}
	clear(b) // the application's memory may have been used before (hugepages.Over)
	return b
}

func (s *ringStore) give(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[len(b)] = append(s.free[len(b)], b)
}
