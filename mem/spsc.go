package mem

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// lineBytes is the size of a cache line. A struct's start may lie anywhere in one, so words of
// different goroutines are kept a whole line apart.
const lineBytes = 64

// SPSC is a bounded single-producer single-consumer ring over a power-of-two backing slice.
//
// The indices run freely and are masked on use; tail-head is the number of elements, full is not
// empty. Each side owns one word and keeps a copy of the other's, which it reads again only when
// the copy says full (or empty): while both sides keep up, a batch costs one store the other side
// must fetch. Elements are written before tail is stored and read after it is loaded; sync/atomic
// orders both.
type SPSC[T any] struct {
	buf   []T
	mask  uint64
	scrub bool // T holds pointers: clear what is taken, or the ring keeps it alive for a lap

	_        [lineBytes]byte
	tail     atomic.Uint64 // producer: next to write
	headSeen uint64        // producer's copy of head

	_        [lineBytes]byte
	head     atomic.Uint64 // consumer: next to read
	tailSeen uint64        // consumer's copy of tail
	_        [lineBytes]byte
}

// NewSPSC makes a ring of len(backing) elements; it panics unless that is a power of two. The
// backing is the ring's until neither side uses it, and must not hold Go pointers when it lies in
// an arena (View).
func NewSPSC[T any](backing []T) *SPSC[T] {
	n := len(backing)
	if n == 0 || n&(n-1) != 0 {
		panic(fmt.Sprintf("mem: SPSC of %d elements, must be a power of two", n))
	}
	return &SPSC[T]{buf: backing, mask: uint64(n - 1), scrub: hasPointers(reflect.TypeFor[T]())}
}

// space returns how many slots the producer may write, asking the consumer's side only if fewer
// than want are known of.
func (r *SPSC[T]) space(tail, want uint64) uint64 {
	size := uint64(len(r.buf))
	n := size - (tail - r.headSeen)
	if n < want {
		r.headSeen = r.head.Load()
		n = size - (tail - r.headSeen)
	}
	return n
}

// filled returns how many elements the consumer may read, asking the producer's side only if fewer
// than want are known of.
func (r *SPSC[T]) filled(head, want uint64) uint64 {
	n := r.tailSeen - head
	if n < want {
		r.tailSeen = r.tail.Load()
		n = r.tailSeen - head
	}
	return n
}

// Push appends v, or returns false when the ring is full. Producer only.
func (r *SPSC[T]) Push(v T) bool {
	tail := r.tail.Load()
	if r.space(tail, 1) == 0 {
		return false
	}
	r.buf[tail&r.mask] = v
	r.tail.Store(tail + 1)
	return true
}

// PushN appends as many of v as there is room for, from the front, and returns how many. The
// consumer sees them all at once. Producer only.
func (r *SPSC[T]) PushN(v []T) int {
	tail := r.tail.Load()
	n := min(uint64(len(v)), r.space(tail, uint64(len(v))))
	if n == 0 {
		return 0
	}
	first := copy(r.buf[tail&r.mask:], v[:n])
	copy(r.buf, v[first:n])
	r.tail.Store(tail + n)
	return int(n)
}

// Pop removes the oldest element; ok is false when there is none. Consumer only.
func (r *SPSC[T]) Pop() (v T, ok bool) {
	head := r.head.Load()
	if r.filled(head, 1) == 0 {
		return v, false
	}
	slot := &r.buf[head&r.mask]
	v = *slot
	if r.scrub {
		var zero T
		*slot = zero
	}
	r.head.Store(head + 1)
	return v, true
}

// PopN moves up to len(dst) of the oldest elements to dst and returns how many. Consumer only.
func (r *SPSC[T]) PopN(dst []T) int {
	head := r.head.Load()
	n := min(uint64(len(dst)), r.filled(head, uint64(len(dst))))
	if n == 0 {
		return 0
	}
	first := copy(dst[:n], r.buf[head&r.mask:])
	copy(dst[first:n], r.buf)
	r.drop(head, n)
	return int(n)
}

// drop gives n slots back to the producer.
func (r *SPSC[T]) drop(head, n uint64) {
	if r.scrub {
		var zero T
		for i := head; i != head+n; i++ {
			r.buf[i&r.mask] = zero
		}
	}
	r.head.Store(head + n)
}

// Len returns the number of elements: exact for either side's own purpose (never too many to pop,
// never too few to refuse a push), a snapshot for anybody else. Any goroutine.
func (r *SPSC[T]) Len() int {
	head := r.head.Load()
	return int(min(r.tail.Load()-head, uint64(len(r.buf))))
}

// Cap returns the number of slots.
func (r *SPSC[T]) Cap() int { return len(r.buf) }

// Reserve returns the i-th next free slot, to be written in place, nil when the ring has none. It
// holds what was there a lap ago. Producer only; Publish makes it visible.
func (r *SPSC[T]) Reserve(i int) *T {
	tail := r.tail.Load()
	if uint64(i) >= r.space(tail, uint64(i)+1) {
		return nil
	}
	return &r.buf[(tail+uint64(i))&r.mask]
}

// Publish makes the n next slots, which Reserve gave out, visible to the consumer. Producer only;
// it panics when there are no n free slots.
func (r *SPSC[T]) Publish(n int) {
	tail := r.tail.Load()
	if n < 0 || uint64(n) > r.space(tail, uint64(n)) {
		r.misuse("Publish", n)
	}
	r.tail.Store(tail + uint64(n))
}

// Peek returns the i-th oldest element in place, nil when there are not so many. It is valid until
// Release gives it back. Consumer only.
func (r *SPSC[T]) Peek(i int) *T {
	head := r.head.Load()
	if uint64(i) >= r.filled(head, uint64(i)+1) {
		return nil
	}
	return &r.buf[(head+uint64(i))&r.mask]
}

// Release removes the n oldest elements. Consumer only; it panics when there are not so many.
func (r *SPSC[T]) Release(n int) {
	head := r.head.Load()
	if n < 0 || uint64(n) > r.filled(head, uint64(n)) {
		r.misuse("Release", n)
	}
	r.drop(head, uint64(n))
}

func (r *SPSC[T]) misuse(what string, n int) {
	panic(fmt.Sprintf("mem: SPSC.%s(%d) with %d of %d elements", what, n, r.Len(), r.Cap()))
}
