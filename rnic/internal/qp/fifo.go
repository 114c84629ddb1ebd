package qp

// fifo is a bounded queue of one goroutine. Its elements are read and changed in place. head is
// free-running and masked. Call init before use.
type fifo[T any] struct {
	slots []T
	head  uint32
	count uint32
}

// init makes room for n elements at least, 1 or more.
func (f *fifo[T]) init(n int) { *f = fifo[T]{slots: make([]T, ceilPow2(n))} }

// end is the place of the next element, free-running as head is.
func (f *fifo[T]) end() uint32 { return f.head + f.count }

func (f *fifo[T]) full() bool { return int(f.count) == len(f.slots) }

// at is element i, which must be there; the oldest is 0.
func (f *fifo[T]) at(i uint32) *T { return &f.slots[(f.head+i)&uint32(len(f.slots)-1)] }

// push adds v after the others; the queue must not be full.
func (f *fifo[T]) push(v T) {
	if f.full() {
		panic("rnic: fifo overflows") // a caller that pushes has a credit
	}
	f.count++
	*f.at(f.count - 1) = v
}

// pop drops the oldest.
func (f *fifo[T]) pop() {
	f.head++
	f.count--
}
