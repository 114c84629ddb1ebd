package rnic

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// watch holds the thresholds of a QueuePair. Each is 0 when it is not armed; whoever swaps it for 0 posts the event.
type watch struct {
	armed atomic.Bool // one of these ever was: arrivals look
	low   atomic.Int64
	high  atomic.Int64
	slow  atomic.Int64
}

// Arm asks for one event of the kind (Adapter.Events), and replaces what was asked for that kind before and has not come; 0 asks for
// nothing. Any goroutine, in any state.
//
//	EventReceiveLow   fewer than limit receive buffers are posted and not completed; at once if that is so. Not with an SRQ,
//	                  which has SharedReceiveQueue.Arm: ErrShared
//	EventReceiveHigh  more than limit receive buffers hold octets and are not delivered, for the peer leaves gaps
//	EventSlowPath     Stats.SlowPath is more than limit. It counts on from the beginning: arm again with Event.Count and some more
//
// They are looked at when octets arrive and have been placed and delivered. All are countermeasures of RFC 5042 (sections 6.4.3.1 and 6.4.4): what a peer may take
// is bounded anyway, and it is the ULP that knows how much is unfair, and may Abort.
func (q *QueuePair) Arm(k EventKind, limit int) error {
	if limit < 0 || limit > math.MaxInt32 && k != EventSlowPath {
		return fmt.Errorf("rnic: threshold %d of event %v", limit, k)
	}
	switch k {
	case EventReceiveLow:
		if q.opt.SRQ != nil {
			return ErrShared
		}
		q.watch.low.Store(int64(limit))
		q.watch.armed.Store(true)
		q.lookLow()
	case EventReceiveHigh:
		q.watch.high.Store(int64(limit))
		q.watch.armed.Store(true)
	case EventSlowPath:
		q.watch.slow.Store(int64(limit))
		q.watch.armed.Store(true)
	default:
		return errors.New("rnic: no threshold belongs to event " + k.String())
	}
	return nil
}

// lookLow posts the low-water event when fewer buffers are posted than the threshold.
func (q *engine) lookLow() {
	low := q.watch.low.Load()
	if posted := int64(q.posted.Load()); posted < low && q.watch.low.CompareAndSwap(low, 0) {
		q.tell(EventReceiveLow, uint64(posted), nil)
	}
}

// look compares what arrivals changed with the thresholds.
func (q *engine) look() {
	w := &q.watch
	q.lookLow()
	if high := w.high.Load(); high > 0 {
		if n := int64(q.recv.sendQ.Begun()); n > high && w.high.CompareAndSwap(high, 0) {
			q.tell(EventReceiveHigh, uint64(n), nil)
		}
	}
	if slow := w.slow.Load(); slow > 0 {
		if n := q.recv.slowPath(); n > uint64(slow) && w.slow.CompareAndSwap(slow, 0) {
			q.tell(EventSlowPath, n, nil)
		}
	}
}

// slowPath is how often octets took a way that costs more than a frame that comes whole in one segment, and that ends no stream.
func (r *recvHalf) slowPath() uint64 {
	s := r.rx.Stats()
	return s.Reassembled + s.Coalesced + s.RefusedBudget + s.RefusedCRC + s.RefusedIslands + s.RefusedUnverified + s.RefusedSpare + r.refused
}
