package mem

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// MPSC is a bounded multi-producer single-consumer ring (per-slot sequence numbers, after D. Vyukov,
// "Bounded MPMC queue").
//
// A slot's sequence number says whose turn it is: index i for the producer that takes position i, i+1 for
// the consumer once the value is there, i+len for the producer of the next lap. Producers take positions by
// compare-and-swap; one that is suspended between taking its position and publishing it hides later elements
// from the consumer until it goes on, but blocks neither the consumer nor another producer.
type MPSC[T any] struct {
	slots []MPSCSlot[T]
	mask  uint64
	scrub bool // as in SPSC

	_    [lineBytes]byte
	tail atomic.Uint64 // producers: next position to take
	_    [lineBytes]byte
	head atomic.Uint64 // consumer: next to read; only Len reads it elsewhere
	_    [lineBytes]byte
}

// MPSCSlot is one element of an MPSC's backing.
type MPSCSlot[T any] struct {
	seq atomic.Uint64
	val T
}

// NewMPSC makes a ring of len(backing) elements; it panics unless that is a power of two above 1 (with one
// slot "full" and "free again" would be the same number). What the slots hold is overwritten.
func NewMPSC[T any](backing []MPSCSlot[T]) *MPSC[T] {
	n := len(backing)
	if n < 2 || n&(n-1) != 0 {
		panic(fmt.Sprintf("mem: MPSC of %d elements, must be a power of two above 1", n))
	}
	for i := range backing {
		backing[i].seq.Store(uint64(i))
	}
	return &MPSC[T]{slots: backing, mask: uint64(n - 1), scrub: hasPointers(reflect.TypeFor[T]())}
}

// Push appends v, or returns false when the ring is full. Any goroutine.
func (r *MPSC[T]) Push(v T) bool {
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
		case turn < 0: // the consumer has not taken the element of the lap before
			return false
		}
		pos = r.tail.Load() // another producer took this position
	}
}

// PushAll appends all of vs, one behind the other with no other producer's between them, or returns false when there is
// no room for all. Consumer: whoever Pops the first of them can Pop the others at once. Any goroutine; it panics when
// vs has more elements than the ring has slots.
func (r *MPSC[T]) PushAll(vs []T) bool {
	k := uint64(len(vs))
	switch {
	case k == 0:
		return true
	case k > uint64(len(r.slots)):
		panic(fmt.Sprintf("mem: MPSC.PushAll of %d elements into %d slots", k, len(r.slots)))
	}
	pos := r.tail.Load()
	for {
		last := &r.slots[(pos+k-1)&r.mask] // slots are given back in order: this one free, all are
		switch turn := int64(last.seq.Load() - (pos + k - 1)); {
		case turn == 0:
			if r.tail.CompareAndSwap(pos, pos+k) {
				r.publish(pos, vs)
				return true
			}
		case turn < 0:
			return false
		}
		pos = r.tail.Load()
	}
}

// publish fills positions that were taken, the first last: the consumer sees none of vs before it can see all.
func (r *MPSC[T]) publish(pos uint64, vs []T) {
	for i := len(vs) - 1; i >= 0; i-- {
		slot := &r.slots[(pos+uint64(i))&r.mask]
		slot.val = vs[i]
		slot.seq.Store(pos + uint64(i) + 1)
	}
}

// Pop removes the oldest element; ok is false when there is none. Consumer only.
func (r *MPSC[T]) Pop() (v T, ok bool) {
	head := r.head.Load()
	if !r.take(head, &v) {
		return v, false
	}
	r.head.Store(head + 1)
	return v, true
}

// PopN moves up to len(dst) of the oldest elements to dst and returns how many. Consumer only.
func (r *MPSC[T]) PopN(dst []T) int {
	head := r.head.Load()
	n := 0
	for n < len(dst) && r.take(head+uint64(n), &dst[n]) {
		n++
	}
	if n > 0 {
		r.head.Store(head + uint64(n))
	}
	return n
}

// take moves the element at pos to v and gives the slot to the next lap's producer.
func (r *MPSC[T]) take(pos uint64, v *T) bool {
	slot := &r.slots[pos&r.mask]
	if slot.seq.Load() != pos+1 {
		return false
	}
	*v = slot.val
	if r.scrub {
		var zero T
		slot.val = zero
	}
	slot.seq.Store(pos + uint64(len(r.slots)))
	return true
}

// Len returns the number of positions taken and not popped, a snapshot. Any goroutine.
func (r *MPSC[T]) Len() int {
	head := r.head.Load()
	return int(min(r.tail.Load()-head, uint64(len(r.slots))))
}

// Cap returns the number of slots.
func (r *MPSC[T]) Cap() int { return len(r.slots) }
