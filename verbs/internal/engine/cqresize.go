package engine

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// cqRings is how many rings a completion queue may have in its time: each is at least twice the one
// before.
const cqRings = 32

// resizeCQ gives a completion queue more entries. What it holds stays, in its order, and what comes
// meanwhile comes after that. A program may ask for fewer than there are, if they hold what is
// there, and keeps what it has.
//
//  1. tail names the new ring: an entry whose position is taken from now on is filled there.
//  2. Those that took one before fill it in the old ring. When all have, which the engine counts
//     itself, what the program has not taken is copied.
//
// The old entries stay mapped until the queue is destroyed: a thread of the program may look there
// for what comes next. All of them together are fewer than the new ones.
func (e *Engine) resizeCQ(c *call) error {
	q, err := find[*cq](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if !q.hold() {
		return syscall.EINVAL // destroyed meanwhile
	}
	defer q.release()
	e.whenQuiet(func() {}) // datagrams that were posted have completed
	q.resize.Lock()
	defer q.resize.Unlock()
	want, tail := c.arg[1], q.tail.Load()
	r, head := q.rings[tail>>32].Load(), atomic.LoadUint32(&q.head.Head)
	if want < 1 || want > ring.CQEMax || uint64(uint32(tail)-head) > want {
		return syscall.EINVAL
	}
	if int(want) > len(r.entries) {
		if r, err = q.grow(r, int(want)); err != nil {
			return err
		}
	}
	c.out[0], c.out[1] = uint64(uintptr(unsafe.Pointer(&r.entries[0]))), uint64(len(r.entries))
	return nil
}

// grow moves to a ring of n entries or more. resize is locked.
func (q *cq) grow(from *cqRing, n int) (*cqRing, error) {
	m, _, entries, err := ringOf[struct{}, wq.CQE](ringSize(n))
	if err != nil {
		return nil, err
	}
	q.keep(m)
	// a seq of 0 is that of position 1<<32 - 1, which would be there
	wq.Publish(&entries[len(entries)-1], new(wq.CQE), 0)
	to := &cqRing{entries: entries}
	end := q.switchTo(to)
	for from.written.Load() != end-from.first {
		runtime.Gosched()
	}
	head := atomic.LoadUint32(&q.head.Head)
	for at := head; at != end && end-at <= uint32(len(from.entries)); at++ {
		old, e := &from.entries[at&uint32(len(from.entries)-1)], &entries[at&uint32(len(entries)-1)]
		*e = *old // nobody polls meanwhile
	}
	return to, nil
}

// switchTo has to be the ring of positions from end on.
func (q *cq) switchTo(to *cqRing) (end uint32) {
	for {
		tail := q.tail.Load()
		to.first = uint32(tail)
		q.rings[tail>>32+1].Store(to) // unused before tail says so
		if q.tail.CompareAndSwap(tail, tail+1<<32) {
			return to.first
		}
	}
}
