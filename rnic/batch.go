package rnic

import "fmt"

// Post queues several requests of the send queue in their order and rings the doorbell once, which is most of what posting costs
// where a Poller sleeps, and lets small messages share segments. Op of each says what it is: OpSend, OpSendInvalidate, OpWrite, OpRead or
// OpLocalInvalidate; the others have operands, and a posting call of their own.
//
// The first n were posted, as by their own calls one after another, and are carried out whatever becomes of the rest; err is what the
// call for wrs[n] would have returned, nil when all were posted. What other goroutines post may come in between. Any goroutine.
func (q *QueuePair) Post(wrs ...WorkRequest) (n int, err error) {
	for n < len(wrs) {
		if err = q.postOne(&wrs[n]); err != nil {
			break
		}
		n++
		n += q.postRun(wrs[n:])
	}
	if n > 0 {
		q.doorbell()
	}
	return n, err
}

// postOne is a posting call without its doorbell.
func (q *QueuePair) postOne(wr *WorkRequest) error {
	switch wr.Op {
	case OpSend, OpSendInvalidate, OpWrite, OpRead, OpLocalInvalidate:
	default:
		return fmt.Errorf("%w: Post of %v", ErrShape, wr.Op)
	}
	if err := q.mayPost(wr.Op, wr); err != nil {
		return err
	}
	w := wqeOf(wr.Op, wr)
	return q.enqueue(&w, wr)
}
