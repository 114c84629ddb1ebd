package rnic

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
)

// CQDepthMax bounds one CompletionQueue.
const CQDepthMax = 1 << 20

// ErrCQFull: posting would need more completions than the CompletionQueue can hold. Entries are given back by Poll, and, of work
// that is not signaled and succeeds, when it is carried out: then there is nothing to poll, and posting is tried again.
var ErrCQFull = errors.New("rnic: completion queue is fully reserved; poll it, let work that is not signaled go out, or create it deeper")

// CompletionQueue is a bounded lock-free queue that any number of QueuePairs of its Adapter fill and one goroutine polls.
//
// It cannot overflow: posting reserves the entry that its completion will need. It has no end of its own: when nobody refers to it
// any more its memory is collected, or goes back to Config.Arena. Until then it may be polled, behind Adapter.Close too.
type CompletionQueue struct {
	adapter  *Adapter
	ring     *mem.MPSC[Completion]
	depth    int64
	reserved atomic.Int64 // entries promised to posted work, or waiting to be polled
	armed    atomic.Bool
	wake     chan struct{}
}

func (a *Adapter) newCQ(depth int) (*CompletionQueue, error) {
	if depth < 1 || depth > CQDepthMax {
		return nil, fmt.Errorf("rnic: completion queue depth %d wanted, 1 to %d possible", depth, CQDepthMax)
	}
	q := &CompletionQueue{adapter: a, depth: int64(depth), wake: make(chan struct{}, 1)}
	q.ring = takeRing[Completion](&a.rings, q, ringSize(depth))
	return q, nil
}

// reserve promises n entries.
func (q *CompletionQueue) reserve(n int64) bool {
	if q.reserved.Add(n) > q.depth {
		q.reserved.Add(-n)
		return false
	}
	return true
}

func (q *CompletionQueue) unreserve(n int64) { q.reserved.Add(-n) }

// push publishes a completion whose entry was reserved. Packet path.
func (q *CompletionQueue) push(c Completion) {
	if !q.ring.Push(c) {
		panic("rnic: completion without a reservation")
	}
	q.rouse()
}

// rouse wakes a consumer that sleeps; only that costs more than a load.
func (q *CompletionQueue) rouse() {
	if q.armed.Load() && q.armed.CompareAndSwap(true, false) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// Poll moves up to len(dst) completions out and returns how many. It never blocks. One goroutine at a time.
func (q *CompletionQueue) Poll(dst []Completion) int {
	n := q.ring.PopN(dst)
	if n > 0 {
		q.reserved.Add(-int64(n))
	}
	return n
}

// Wait returns when there is something to poll or ctx ends. Same goroutine as Poll. A completion that arrives
// between a fruitless Poll and Wait is not missed: the queue is looked at again after it was armed. The error is ctx.Err(); that a
// QueuePair has ended is no error here, its work completes as Flushed.
func (q *CompletionQueue) Wait(ctx context.Context) error {
	for q.ring.Len() == 0 {
		q.armed.Store(true)
		if q.ring.Len() != 0 {
			q.armed.Store(false)
			return nil
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			q.armed.Store(false)
			return ctx.Err()
		}
	}
	return nil
}

// Depth is the number of entries.
func (q *CompletionQueue) Depth() int { return int(q.depth) }

// ringSize is what a ring of n entries takes: a power of two, at least 2 (mem.MPSC).
func ringSize(n int) int { return max(2, ceilPow2(n)) }

func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
