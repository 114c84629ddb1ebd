package engine

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/ring"
)

// cqRings is how many rings a completion queue may have in its time: each is at least twice the one before.
const cqRings = 32

// resizeWait bounds the wait for completions that are being written. Only a program that writes to its
// entries itself makes it last.
const resizeWait = 10 * time.Second

// resizeCQ gives a completion queue more entries. What it holds stays, in its order, and what comes
// meanwhile comes after that. A program may ask for fewer than there are, if they hold what is there,
// and keeps what it has.
//
//  1. tail names the new ring: whoever takes a position from now on fills its entry there.
//  2. Those that took one before fill it in the old ring. Each is copied when it is there.
//
// The old entries stay mapped until the queue is destroyed: a thread of the program may look there
// for what comes next. All of them together are fewer than the new ones.
func (e *Engine) resizeCQ(c *call) error {
	q, err := find[*cq](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	q.resize.Lock()
	defer q.resize.Unlock()
	want, tail := c.arg[1], q.tail.Load()
	from, head := *q.rings[tail>>32].Load(), atomic.LoadUint32(&q.head.Head)
	if want < 1 || want > rnic.CQDepthMax || uint64(uint32(tail)-head) > want {
		return syscall.EINVAL
	}
	to := from
	if int(want) > len(from) {
		if to, err = q.grow(from, int(want), head); err != nil {
			return err
		}
	}
	c.out[0], c.out[1] = uint64(uintptr(unsafe.Pointer(&to[0]))), uint64(len(to))
	return nil
}

// grow moves to a ring of n entries or more. resize is locked.
func (q *cq) grow(from []ring.CQE, n int, head uint32) ([]ring.CQE, error) {
	m, _, to, err := ringOf[struct{}, ring.CQE](ringSize(n))
	if err != nil {
		return nil, err
	}
	q.keep(m)
	to[len(to)-1].Seq = 1 // a seq of 0 is that of position 1<<32 - 1, which would be there
	gen := q.tail.Load()>>32 + 1
	q.rings[gen].Store(&to)
	tail := q.tail.Load()
	for !q.tail.CompareAndSwap(tail, gen<<32|tail&0xffffffff) {
		tail = q.tail.Load()
	}
	deadline := time.Now().Add(resizeWait)
	for at, end := head, uint32(tail); at != end && end-at <= uint32(len(from)); at++ {
		old, e := &from[at&uint32(len(from)-1)], &to[at&uint32(len(to)-1)]
		for atomic.LoadUint32(&old.Seq) != at+1 && time.Now().Before(deadline) {
			runtime.Gosched()
		}
		seq := atomic.LoadUint32(&old.Seq)
		*e = *old
		atomic.StoreUint32(&e.Seq, seq)
	}
	return to, nil
}
