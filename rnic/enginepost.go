package rnic

// Posting: for any goroutine, before, in and after service. What is posted after the end is flushed by flush, which the caller
// calls when it finds the engine Closed.

// mayAsk refuses what this connection's dialect or its read depth does not have. One that is not in service yet is for the caller to
// refuse.
func (q *engine) mayAsk(op Opcode) error {
	if op.extended() && q.unextended.Load() {
		return ErrExtension
	}
	if op.isRequest() {
		if s := q.State(); s != Idle && s != Connecting && q.requester.ord == 0 {
			return ErrReadDepth
		}
	}
	return nil
}

// postSend queues a request of the send queue with its list or its inline octets, its completion reserved.
func (q *engine) postSend(w *wqe, list []SGE, inline []byte) error {
	if !q.sendCQ.reserve(1) {
		return ErrCQFull
	}
	if !pushWork(q.sq, w, list, inline) {
		q.sendCQ.unreserve(1)
		return ErrSendQueueFull
	}
	return nil
}

// postSends queues requests that have neither, two or more, together. All of them or none; it returns how many.
func (q *engine) postSends(run []wqe) int {
	n := min(len(run), q.sq.Cap())
	if n < 2 || !q.sendCQ.reserve(int64(n)) {
		return 0
	}
	if !q.sq.PushAll(run[:n]) {
		q.sendCQ.unreserve(int64(n))
		return 0
	}
	return n
}

// postRecv queues a receive buffer.
func (q *engine) postRecv(w *wqe, list []SGE) error {
	if !q.recvCQ.reserve(1) {
		return ErrCQFull
	}
	if !q.postable(1) {
		q.recvCQ.unreserve(1)
		return ErrRecvQueueFull
	}
	pushWork(q.rq, w, list, nil) // has room for recvDepth
	return nil
}

// postRecvs is postSends of receive buffers.
func (q *engine) postRecvs(run []wqe) int {
	n := len(run)
	if n < 2 || !q.recvCQ.reserve(int64(n)) {
		return 0
	}
	if !q.postable(int32(n)) {
		q.recvCQ.unreserve(int64(n))
		return 0
	}
	q.rq.PushAll(run) // has room for recvDepth
	return n
}

// postable counts n receive buffers as posted, if recvDepth allows so many more.
func (q *engine) postable(n int32) bool {
	for {
		had := q.posted.Load()
		if had+n > int32(q.recvDepth) {
			return false
		}
		if q.posted.CompareAndSwap(had, had+n) {
			return true
		}
	}
}
