package qp

import (
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
)

// watch holds the thresholds of an Engine. Each is 0 when it is not armed. The goroutine that swaps
// it for 0 posts the event.
type watch struct {
	armed atomic.Bool // one of these was armed at some time: arrivals check them
	low   atomic.Int64
	high  atomic.Int64
	slow  atomic.Int64
}

// Arm sets the threshold of an event; 0: none. Any goroutine.
func (q *Engine) Arm(k wq.EventKind, limit int64) {
	switch k {
	case wq.EventReceiveLow:
		q.watch.low.Store(limit)
	case wq.EventReceiveHigh:
		q.watch.high.Store(limit)
	case wq.EventSlowPath:
		q.watch.slow.Store(limit)
	}
	q.watch.armed.Store(true)
	if k == wq.EventReceiveLow {
		q.checkLow()
	}
}

// checkLow posts the low-water event when fewer buffers are posted than the threshold.
func (q *Engine) checkLow() {
	low := q.watch.low.Load()
	if posted := int64(q.posted.Load()); posted < low && q.watch.low.CompareAndSwap(low, 0) {
		q.Tell(wq.EventReceiveLow, uint64(posted), nil)
	}
}

// checkThresholds posts the events whose thresholds an arrival has crossed.
func (q *Engine) checkThresholds() {
	w := &q.watch
	q.checkLow()
	if high := w.high.Load(); high > 0 {
		if n := int64(q.recv.sendQ.Begun()); n > high && w.high.CompareAndSwap(high, 0) {
			q.Tell(wq.EventReceiveHigh, uint64(n), nil)
		}
	}
	if slow := w.slow.Load(); slow > 0 {
		if n := q.recv.slowPath(); n > uint64(slow) && w.slow.CompareAndSwap(slow, 0) {
			q.Tell(wq.EventSlowPath, n, nil)
		}
	}
}
