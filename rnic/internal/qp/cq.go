package qp

import (
	"slices"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
)

// CQ is a bounded lock-free queue of completions, which any number of engines fill and one
// goroutine polls.
//
// Posting reserves the entry that its completion will need, so that it cannot overflow; except for
// shared receive buffers, whose entries are reserved when an engine takes them.
type CQ struct {
	ring     *mem.MPSC[CQE]
	depth    int64
	reserved atomic.Int64  // entries promised to posted work, or waiting to be polled
	armed    atomic.Uint32 // what the consumer waits for
	wake     chan struct{}
}

// Init readies a queue of depth entries, for which ring has room.
func (q *CQ) Init(ring *mem.MPSC[CQE], depth int) {
	q.ring, q.depth, q.wake = ring, int64(depth), make(chan struct{}, 1)
}

// Reserve promises n entries. A caller that is refused has held none meanwhile: what there is room
// for is never refused for somebody else's sake, which to a shared receive buffer would be an
// overflow. Any goroutine.
func (q *CQ) reserve(n int64) bool {
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

// unreserve gives n entries back. Any goroutine.
func (q *CQ) unreserve(n int64) { q.reserved.Add(-n) }

// Push publishes a completion whose entry was reserved. Packet path.
func (q *CQ) push(c CQE) {
	if !q.ring.Push(c) {
		panic("rnic: completion without a reservation")
	}
	if q.waitedFor() {
		q.notify(urgent(&c))
	}
}

// pushAll publishes completions whose entries were reserved. Packet path.
func (q *CQ) pushAll(cs []CQE) {
	if !q.ring.PushAll(cs) {
		panic("rnic: completion without a reservation")
	}
	if q.waitedFor() {
		q.notify(slices.ContainsFunc(cs, func(c CQE) bool { return urgent(&c) }))
	}
}

// waitedFor: only a consumer that waits costs more than this load.
func (q *CQ) waitedFor() bool { return q.armed.Load() != disarmed }

// urgent says whether c is one that armedSolicited waits for.
func urgent(c *CQE) bool { return c.Solicited || c.Status != Success }

// Poll moves up to len(dst) completions out and returns how many. It never blocks. One goroutine at
// a time.
func (q *CQ) Poll(dst []CQE) int {
	n := q.ring.PopN(dst)
	if n > 0 {
		q.reserved.Add(-int64(n))
	}
	return n
}

// Size is the number of entries.
func (q *CQ) Size() int { return int(q.depth) }

// Waiting is how many completions there are to poll.
func (q *CQ) Waiting() int { return q.ring.Len() }

// What a consumer waits for: nothing, a completion that is urgent, any.
const (
	disarmed uint32 = iota
	ArmedSolicited
	ArmedAny
)

// Arm asks for one value in ready when the next completion comes of those that how is about; at
// once if there is something to poll already. It does not take back what was asked before. Same
// goroutine as poll.
func (q *CQ) Arm(how uint32) {
	for was := q.armed.Load(); was < how; was = q.armed.Load() {
		if q.armed.CompareAndSwap(was, how) {
			break
		}
	}
	if q.ring.Len() != 0 {
		q.notify(true)
	}
}

// Disarm asks for nothing any more.
func (q *CQ) Disarm() { q.armed.Store(disarmed) }

// Ready has a value after arm. Now and then there is one without a cause.
func (q *CQ) Ready() <-chan struct{} { return q.wake }

// notify wakes the consumer if it waits for a completion that was published, urgent or not. Either
// its caller, or the look of arm after arming, sees both.
func (q *CQ) notify(urgent bool) {
	for {
		armed := q.armed.Load()
		if armed == disarmed || armed == ArmedSolicited && !urgent {
			return
		}
		if q.armed.CompareAndSwap(armed, disarmed) {
			break
		}
	}
	select {
	case q.wake <- struct{}{}:
	default: // it has not taken the last one
	}
}
