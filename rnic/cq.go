package rnic

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
)

// CompletionQueue is a bounded lock-free queue that any number of QueuePairs of its Adapter fill and one goroutine polls.
//
// Posting reserves the entry that its completion will need, so that it cannot overflow; but for shared receive buffers, whose
// completions are known when a QueuePair takes them. That one then leaves service, and nobody else. It has no end of its own: when nobody refers to it
// any more its memory is collected, or goes back to Config.Arena. Until then it may be polled, behind Adapter.Close too.
type CompletionQueue struct {
	adapter  *Adapter
	ring     *mem.MPSC[Completion]
	depth    int64
	reserved atomic.Int64  // entries promised to posted work, or waiting to be polled
	armed    atomic.Uint32 // a Notification (notify.go), or disarmed
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

// reserve promises n entries. Who is refused has held none meanwhile: what there is room for is never refused for somebody else's
// sake, which to a shared receive buffer would be an overflow.
func (q *CompletionQueue) reserve(n int64) bool {
	for {
		had := q.reserved.Load()
		if had+n > q.depth {
			return false
		}
		if q.reserved.CompareAndSwap(had, had+n) {
			return true
		}
	}
}

func (q *CompletionQueue) unreserve(n int64) { q.reserved.Add(-n) }

// push publishes a completion whose entry was reserved. Packet path.
func (q *CompletionQueue) push(c Completion) {
	if !q.ring.Push(c) {
		panic("rnic: completion without a reservation")
	}
	if q.waitedFor() {
		q.notify(urgent(&c))
	}
}

// waitedFor: only a consumer that waits costs more than this load.
func (q *CompletionQueue) waitedFor() bool { return q.armed.Load() != uint32(disarmed) }

// urgent says whether c is what NextSolicited is about.
func urgent(c *Completion) bool { return c.Solicited || c.Status != Success }

// Poll moves up to len(dst) completions out and returns how many. It never blocks. One goroutine at a time.
func (q *CompletionQueue) Poll(dst []Completion) int {
	n := q.ring.PopN(dst)
	if n > 0 {
		q.reserved.Add(-int64(n))
	}
	return n
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
