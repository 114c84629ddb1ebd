package qp

import (
	"slices"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// CQ is a bounded lock-free queue of completions, which any number of engines fill and one
// goroutine polls.
//
// Posting reserves the entry that its completion will need, so the queue cannot overflow. Entries
// for shared receive buffers are reserved when an engine takes the buffers; there it can.
type CQ struct {
	ring     *mem.MPSC[wq.CQE]
	depth    int64
	reserved atomic.Int64  // entries promised to posted work, or waiting to be polled
	armed    atomic.Uint32 // what the consumer waits for: disarmed, ArmedSolicited, ArmedAny
	wake     chan struct{}

	sink func(wq.CQE) // takes completions in place of ring, without reservations; nil: none
}

// Init makes a queue of depth entries. ring has room for that many.
func (q *CQ) Init(ring *mem.MPSC[wq.CQE], depth int) {
	q.ring, q.depth, q.wake = ring, int64(depth), make(chan struct{}, 1)
}

// InitSink makes a queue that keeps nothing: each completion is handed to sink, on the goroutine
// that completes the request. It has room for any number.
func (q *CQ) InitSink(sink func(wq.CQE)) { q.sink = sink }

// Reserve promises n entries, all or none. A reservation that is refused takes no entry even for a
// moment: otherwise a smaller one of another goroutine, for which there is room, could be refused
// meanwhile, and for a shared receive buffer that ends the stream. Any goroutine.
func (q *CQ) Reserve(n int64) bool {
	if q.sink != nil {
		return true
	}
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
func (q *CQ) Push(c wq.CQE) {
	if q.sink != nil {
		q.sink(c)
		return
	}
	if !q.ring.Push(c) {
		panic("rnic: completion without a reservation")
	}
	if q.waitedFor() {
		q.notify(urgent(&c))
	}
}

// pushAll publishes completions whose entries were reserved. Packet path.
func (q *CQ) pushAll(cs []wq.CQE) {
	if q.sink != nil {
		for i := range cs {
			q.sink(cs[i])
		}
		return
	}
	if !q.ring.PushAll(cs) {
		panic("rnic: completion without a reservation")
	}
	if q.waitedFor() {
		q.notify(slices.ContainsFunc(cs, func(c wq.CQE) bool { return urgent(&c) }))
	}
}

// waitedFor says whether the consumer waits. If not, publishing costs no more than this load.
func (q *CQ) waitedFor() bool { return q.armed.Load() != disarmed }

// urgent says whether c is one that ArmedSolicited waits for.
func urgent(c *wq.CQE) bool { return c.Solicited || c.Status != wq.Success }

// Poll moves up to len(dst) completions out and returns how many. It never blocks. One goroutine at
// a time.
func (q *CQ) Poll(dst []wq.CQE) int {
	if q.sink != nil {
		return 0
	}
	n := q.ring.PopN(dst)
	if n > 0 {
		q.reserved.Add(-int64(n))
	}
	return n
}

// Size is the number of entries.
func (q *CQ) Size() int { return int(q.depth) }

// Waiting is how many entries are taken: by completions to poll, or that are just being filled in.
func (q *CQ) Waiting() int { return q.ring.Len() }

// Waits says that Poll would find a completion. Same goroutine as Poll.
func (q *CQ) Waits() bool { return q.ring.Waits() }

// What the consumer waits for: nothing, an urgent completion, any completion.
const (
	disarmed uint32 = iota
	ArmedSolicited
	ArmedAny
)

// Arm requests one value on Ready for the next completion that how (ArmedSolicited, ArmedAny)
// names; at once if there are completions to poll already. ArmedAny stays when ArmedSolicited
// follows it. Same goroutine as Poll.
func (q *CQ) Arm(how uint32) {
	for was := q.armed.Load(); was < how; was = q.armed.Load() {
		if q.armed.CompareAndSwap(was, how) {
			break
		}
	}
	// also one that is just being filled in: there may be an urgent one after it
	if q.ring.Len() != 0 {
		q.notify(true)
	}
}

// Disarm withdraws what Arm requested.
func (q *CQ) Disarm() { q.armed.Store(disarmed) }

// Ready has a value for each Arm. Now and then there is one without a new completion.
func (q *CQ) Ready() <-chan struct{} { return q.wake }

// notify wakes the consumer if it waits for what was just published; urgent: an urgent completion
// is part of that. The producer publishes and then reads armed; Arm sets armed and then looks at
// the ring. So one of the two sees both, and no wake-up is lost.
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
	default: // the consumer has not taken the last value
	}
}
