package rnic

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// CompletionQueue is a bounded lock-free queue that any number of QueuePairs of its Adapter fill
// and one goroutine polls.
//
// Posting reserves the entry that its completion will need, so that it cannot overflow; except for
// shared receive buffers, whose completions are known when a QueuePair takes them. That one then
// leaves service. It need not be closed: when there is no reference to it any more its
// memory is collected, or goes back to Config.Arena. Until then it may be polled, after
// Adapter.Close too.
type CompletionQueue struct {
	adapter *Adapter
	q       qp.CQ
	ring    mem.MPSC[wq.CQE] // q's
}

// CreateCQ makes a CompletionQueue of the given depth, 1 to CQDepthMax, for QueuePairs of this
// Adapter. Any other is an error. Any goroutine.
func (a *Adapter) CreateCQ(depth int) (*CompletionQueue, error) {
	if depth < 1 || depth > CQDepthMax {
		return nil, fmt.Errorf("rnic: completion queue depth %d wanted, 1 to %d possible",
			depth, CQDepthMax)
	}
	q := &CompletionQueue{adapter: a}
	q.q.Init(takeRing(&a.rings, q, &q.ring, qp.RingSize(depth)), depth)
	return q, nil
}

// CreateCQSink makes a CompletionQueue that keeps nothing: put is called for each Completion, on
// the goroutine that drives the connection or on one that posts to a QueuePair which is over, of
// several QueuePairs at once, of each in the order of its work. put must not block and must not
// call this package. There is no depth, and posting never fails with ErrCQFull; put must count what
// it cannot take. Use it to fill a queue that is shared with another language or process. Poll
// finds nothing; do not call Arm and Wait.
func (a *Adapter) CreateCQSink(put func(Completion)) *CompletionQueue {
	q := &CompletionQueue{adapter: a}
	q.q.InitSink(put)
	return q
}

// Poll moves up to len(dst) completions out and returns how many. It never blocks. Where there are
// none it drives the connections over the kernel's sockets first (Adapter.Progress): one that polls
// needs no other goroutine, and what Config.Fell and sinks are told may come during the call. One
// goroutine at a time.
func (q *CompletionQueue) Poll(dst []Completion) int {
	n := q.q.Poll(dst)
	if n == 0 && q.adapter.Progress() {
		n = q.q.Poll(dst)
	}
	return n
}

// Depth is the number of entries. Any goroutine.
func (q *CompletionQueue) Depth() int { return q.q.Size() }
