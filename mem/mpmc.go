package mem

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// MPMC is a bounded multi-producer multi-consumer ring (D. Vyukov, "Bounded MPMC queue"): an MPSC
// whose consumers take positions by compare-and-swap, too.
//
// A slot's sequence number says whose turn it is: index i for the producer that takes position i,
// i+1 for the consumer that does once the value is there, i+len for the producer of the next lap. A
// producer or consumer that is suspended between taking a position and finishing with it blocks no
// goroutine, but Push may call a ring full, and Pop one empty, whose next slot such a one has in
// hand. So a producer that was told of room, or a consumer of an element, by other means than this
// ring (a counter) needs to know that those before it have finished: serialize the producers, and
// each element is there for a consumer that learns of it after its Push.
type MPMC[T any] struct {
	slots []MPMCSlot[T]
	mask  uint64
	scrub bool // as in SPSC

	_    [lineBytes]byte
	tail atomic.Uint64 // producers: next position to take
	_    [lineBytes]byte
	head atomic.Uint64 // consumers: next position to take
	_    [lineBytes]byte
}

// MPMCSlot is one element of an MPMC's backing.
type MPMCSlot[T any] struct {
	seq atomic.Uint64
	val T
}

// NewMPMC makes a ring of len(backing) elements; it panics unless that is a power of two above 1.
// What the slots hold is overwritten. The backing is the ring's while it is in use, and must not
// hold Go pointers when it lies in an arena (View).
func NewMPMC[T any](backing []MPMCSlot[T]) *MPMC[T] {
	n := len(backing)
	if n < 2 || n&(n-1) != 0 {
		panic(fmt.Sprintf("mem: MPMC of %d elements, must be a power of two above 1", n))
	}
	for i := range backing {
		backing[i].seq.Store(uint64(i))
	}
	return &MPMC[T]{slots: backing, mask: uint64(n - 1), scrub: hasPointers(reflect.TypeFor[T]())}
}

// Push appends v, or returns false when the ring is full. Any goroutine.
func (r *MPMC[T]) Push(v T) bool {
	pos := r.tail.Load()
	for {
		slot := &r.slots[pos&r.mask]
		switch turn := int64(slot.seq.Load() - pos); {
		case turn == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				slot.val = v
				slot.seq.Store(pos + 1)
				return true
			}
		case turn < 0: // the element of the lap before is still there
			return false
		}
		pos = r.tail.Load() // another producer took this position
	}
}

// Pop removes the oldest element; ok is false when there is none. Any goroutine.
func (r *MPMC[T]) Pop() (v T, ok bool) {
	pos := r.head.Load()
	for {
		slot := &r.slots[pos&r.mask]
		switch turn := int64(slot.seq.Load() - (pos + 1)); {
		case turn == 0:
			if r.head.CompareAndSwap(pos, pos+1) {
				return r.take(slot, pos), true
			}
		case turn < 0: // nothing there yet
			return v, false
		}
		pos = r.head.Load() // another consumer took this position
	}
}

// take empties the slot of position pos, which is the caller's, and gives it to the next lap's
// producer.
func (r *MPMC[T]) take(slot *MPMCSlot[T], pos uint64) T {
	v := slot.val
	if r.scrub {
		var zero T
		slot.val = zero
	}
	slot.seq.Store(pos + uint64(len(r.slots)))
	return v
}

// Len returns the number of positions that producers have taken and consumers have not, a snapshot.
// Any goroutine.
func (r *MPMC[T]) Len() int {
	head := r.head.Load()
	return int(min(r.tail.Load()-head, uint64(len(r.slots))))
}

// Cap returns the number of slots.
func (r *MPMC[T]) Cap() int { return len(r.slots) }
