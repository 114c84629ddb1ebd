package mem

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// MPSC is a bounded multi-producer single-consumer ring (per-slot sequence numbers, after D.
// Vyukov, "Bounded MPMC queue", with the consumer's index in place of its half of those numbers).
//
// A slot's sequence number says that the value is there: position+1, which the producer stores when
// it has written it. Producers take positions by compare-and-swap of tail; one that is suspended
// between taking its position and publishing it hides later elements from the consumer until it
// goes on, but blocks neither the consumer nor another producer. The consumer gives slots back by
// moving head, once for all that it takes at a time: it writes to no slot.
type MPSC[T any] struct {
	slots []MPSCSlot[T]
	mask  uint64
	scrub bool // as in SPSC

	_    [lineBytes]byte
	tail atomic.Uint64 // producers: next position to take
	seen atomic.Uint64 // producers: what head was when somebody last had to know, or less
	_    [lineBytes]byte
	head atomic.Uint64 // consumer: what is before it is the producers' again
	next uint64        // consumer: next to read
	_    [lineBytes]byte
}

// MPSCSlot is one element of an MPSC's backing.
type MPSCSlot[T any] struct {
	seq atomic.Uint64
	val T
}

// NewMPSC makes a ring of len(backing) elements; it panics unless that is a power of two above 1
// (with one slot "full" and "free again" would be the same number). What the slots hold is
// overwritten.
func NewMPSC[T any](backing []MPSCSlot[T]) *MPSC[T] {
	r := new(MPSC[T])
	r.Init(backing)
	return r
}

// Init is NewMPSC of a ring that is part of something else. It must not be in use yet.
func (r *MPSC[T]) Init(backing []MPSCSlot[T]) {
	clear(backing)
	r.InitZero(backing)
}

// InitZero is Init with slots that are zero, as memory just made is.
func (r *MPSC[T]) InitZero(backing []MPSCSlot[T]) {
	n := len(backing)
	if n < 2 || n&(n-1) != 0 {
		panic(fmt.Sprintf("mem: MPSC of %d elements, must be a power of two above 1", n))
	}
	r.slots, r.mask, r.scrub = backing, uint64(n-1), hasPointers(reflect.TypeFor[T]())
}

// Push appends v, or returns false when the ring is full. Any goroutine.
func (r *MPSC[T]) Push(v T) bool {
	pos, ok := r.reserve(1)
	if !ok {
		return false
	}
	slot := &r.slots[pos&r.mask]
	slot.val = v
	slot.seq.Store(pos + 1)
	return true
}

// PushAll appends all of vs, one after the other with no other producer's between them, or returns
// false when there is no room for all. A consumer that Pops the first can Pop the others
// at once. Any goroutine; it panics when vs has more elements than the ring has slots.
func (r *MPSC[T]) PushAll(vs []T) bool {
	k := uint64(len(vs))
	switch {
	case k == 0:
		return true
	case k > uint64(len(r.slots)):
		panic(fmt.Sprintf("mem: MPSC.PushAll of %d elements into %d slots", k, len(r.slots)))
	}
	pos, ok := r.reserve(k)
	if ok {
		r.publish(pos, vs)
	}
	return ok
}

// reserve takes k positions, from pos on. The words only grow, and head is never
// beyond tail: a pos that is after head was taken by another producer, and the compare-and-swap
// says so. head is the consumer's to write, so it is looked at only where the ring would be full by
// what was seen of it last.
func (r *MPSC[T]) reserve(k uint64) (pos uint64, ok bool) {
	for {
		pos = r.tail.Load()
		if most := int64(uint64(len(r.slots)) - k); int64(pos-r.seen.Load()) > most {
			head := r.head.Load()
			if int64(pos-head) > most {
				return 0, false
			}
			r.seen.Store(head)
		}
		if r.tail.CompareAndSwap(pos, pos+k) {
			return pos, true
		}
	}
}

// publish fills positions that were taken, the first last: the consumer sees none of vs before it
// can see all. The others need no barrier of their own, for the consumer looks at them after the
// first; that one's makes all of them seen when publish returns, which is what a doorbell relies
// upon.
func (r *MPSC[T]) publish(pos uint64, vs []T) {
	for i := len(vs) - 1; i > 0; i-- {
		slot := &r.slots[(pos+uint64(i))&r.mask]
		slot.val = vs[i]
		StoreRelease(&slot.seq, pos+uint64(i)+1)
	}
	slot := &r.slots[pos&r.mask]
	slot.val = vs[0]
	slot.seq.Store(pos + 1)
}

// Take moves the oldest element to *v, or returns false, and leaves it alone, when there is none.
// Its slot stays taken, and counts in Len, until Release: a consumer that takes several pays for
// one barrier. Consumer only.
func (r *MPSC[T]) Take(v *T) bool {
	slot := &r.slots[r.next&r.mask]
	if slot.seq.Load() != r.next+1 {
		return false
	}
	*v = slot.val
	if r.scrub {
		var zero T
		slot.val = zero
	}
	r.next++
	return true
}

// Release gives the producers the slots of all that was taken. Consumer only.
func (r *MPSC[T]) Release() {
	if r.head.Load() != r.next {
		StoreRelease(&r.head, r.next) // a producer that sees it late finds the ring full a little longer
	}
}

// Waits says that there is an element to take. Consumer only.
func (r *MPSC[T]) Waits() bool { return r.slots[r.next&r.mask].seq.Load() == r.next+1 }

// Pop removes the oldest element; ok is false when there is none. Consumer only.
func (r *MPSC[T]) Pop() (v T, ok bool) {
	ok = r.Take(&v)
	r.Release()
	return v, ok
}

// PopN moves up to len(dst) of the oldest elements to dst and returns how many. Consumer only.
func (r *MPSC[T]) PopN(dst []T) int {
	n := 0
	for n < len(dst) && r.Take(&dst[n]) {
		n++
	}
	r.Release()
	return n
}

// Len returns the number of positions that producers took and the consumer has not given back, a
// snapshot. Any goroutine.
func (r *MPSC[T]) Len() int {
	head := r.head.Load()
	return int(min(r.tail.Load()-head, uint64(len(r.slots))))
}

// Cap returns the number of slots.
func (r *MPSC[T]) Cap() int { return len(r.slots) }
