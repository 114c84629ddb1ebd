package rnic

import (
	"github.com/rnicd/rnicd/internal/wq"
)

// runMax is how many requests go on a ring together.
const runMax = 16

// PostSend queues requests of the send queue in their order, as ibv_post_send does with a chain,
// and rings the doorbell once: together they cost less than one by one, and small messages share
// segments. Op of each says what it is; WorkRequest says which operands that takes. Other
// goroutines' requests may come in between. Any goroutine, from the RTS state on; it does not
// block.
//
// The first n were posted. err is about wrs[n], which was not posted at all, and nil if all were
// posted:
//   - ErrSendQueueFull, ErrCQFull: not now;
//   - ErrState before RTS; ErrClosed once this end has called Disconnect, Close or Abort (RFC 5041
//     section 8.2.1). When the connection ended otherwise the request completes as Flushed;
//   - ErrShape, ErrListTooLong, ErrInlineTooLong, ErrTooLong: the request cannot be like that;
//   - ErrReadDepth, ErrExtension: this connection has no such requests.
//
// The octets of a request belong to the QueuePair until it has completed. A request that is not
// signaled has a completion only if it fails: requests complete in order, so its octets are the
// application's again when a later request of the QueuePair has completed, or Done is closed.
func (q *QueuePair) PostSend(wrs ...WorkRequest) (n int, err error) {
	for n < len(wrs) {
		if err = q.enqueue(&wrs[n]); err != nil {
			break
		}
		n++
		if len(wrs)-n > 1 {
			n += q.enqueueRun(wrs[n:])
		}
	}
	if n > 0 {
		q.doorbell()
	}
	return n, err
}

// PostRecv queues receive buffers in their order: Local and List of each. All RecvDepth buffers
// are usable at once, in any order. Any goroutine, from Idle on, and also after this end has closed
// its half: the peer's may still speak. When the connection is over a buffer is taken as well, and
// completes as Flushed.
//
// The first n were posted; err is about wrs[n], and nil when all were: ErrRecvQueueFull when
// RecvDepth are posted and not completed, ErrCQFull when their completions have no room, ErrShared
// with an SRQ, and PostSend's about shape.
func (q *QueuePair) PostRecv(wrs ...WorkRequest) (n int, err error) {
	for n < len(wrs) && err == nil {
		if err = q.enqueueRecv(&wrs[n]); err != nil { // alone first, which knows what is wrong
			break
		}
		n++
		if len(wrs)-n > 1 {
			n += q.enqueueRecvRun(wrs[n:])
		}
	}
	if n > 0 && q.State() == Closed {
		q.engine.Flush()
	}
	return n, err
}

// enqueue puts one request on the send ring, with its completion reserved.
func (q *QueuePair) enqueue(wr *WorkRequest) error {
	if err := q.mayPost(wr); err != nil {
		return err
	}
	var w wq.WQE
	putWQE(&w, wr.Op, wr)
	var masks [1]SGE
	return q.engine.PostSend(&w, after(wr, &masks), wr.Inline)
}

// mayPost refuses what the request, the connection or its state cannot have.
func (q *QueuePair) mayPost(wr *WorkRequest) error {
	if err := q.couldPost(wr); err != nil {
		return err
	}
	if q.end.Unwanted.Load() {
		return ErrClosed
	}
	return nil
}

// couldPost is mayPost without ErrClosed.
func (q *QueuePair) couldPost(wr *WorkRequest) error {
	if err := checkSend(wr, q.opt.SGEMax, q.opt.InlineMax); err != nil {
		return err
	}
	return q.mayAsk(wr.Op)
}

// mayAsk refuses what the connection or its state cannot have.
func (q *QueuePair) mayAsk(op Opcode) error {
	if err := q.engine.MayAsk(op); err != nil {
		return err
	}
	switch q.State() {
	case Idle, Connecting:
		return ErrState
	}
	return nil
}

// enqueueRun queues those at the front of wrs that need one entry each, up to runMax, together: one
// reservation and one barrier. All of them or none; it says how many. With none, posting them one
// by one tells why. The connection's state was looked at for the request before.
func (q *QueuePair) enqueueRun(wrs []WorkRequest) int {
	var run [runMax]wq.WQE
	n := 0
	for n < min(len(wrs), runMax) && plain(&wrs[n]) {
		putWQE(&run[n], wrs[n].Op, &wrs[n])
		n++
	}
	return q.engine.PostSends(run[:n])
}

// plain says whether a request is possible as it is, whatever the connection has settled, and is
// one entry.
func plain(wr *WorkRequest) bool {
	return (wr.Op == OpSend || wr.Op == OpWrite) && len(wr.List) == 0 && len(wr.Inline) == 0
}

// doorbell has the send ring looked at: by the connection's driver, or by us when no goroutine
// drives it any more.
func (q *QueuePair) doorbell() {
	if q.State() == Closed {
		q.engine.Flush()
	} else {
		q.end.Wake()
	}
}

// enqueueRecv puts one receive buffer on the receive ring.
func (q *QueuePair) enqueueRecv(wr *WorkRequest) error {
	if q.opt.SRQ != nil {
		return ErrShared
	}
	if err := checkRecv(wr, q.opt.SGEMax); err != nil {
		return err
	}
	var w wq.WQE
	putWQE(&w, OpRecv, wr)
	return q.engine.PostRecv(&w, wr.List)
}

// enqueueRecvRun is enqueueRun of receive buffers.
func (q *QueuePair) enqueueRecvRun(wrs []WorkRequest) int {
	var run [runMax]wq.WQE
	n := 0
	for n < min(len(wrs), runMax) && len(wrs[n].List) == 0 && checkRecv(&wrs[n], q.opt.SGEMax) == nil {
		putWQE(&run[n], OpRecv, &wrs[n])
		n++
	}
	return q.engine.PostRecvs(run[:n])
}
