package qp

// Posting: for any goroutine, before, in and after service. What is posted after the end is flushed
// by flush, which the caller calls when it finds the engine Closed.

// MayAsk refuses what this connection's dialect or its read depth does not have. One that is not in
// service yet is for the caller to refuse.
func (q *Engine) MayAsk(op Opcode) error {
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

// PostSend queues a request of the send queue with its list or its inline octets, its completion
// reserved.
func (q *Engine) PostSend(w *WQE, list []SGE, inline []byte) error {
	if !q.SendCQ.reserve(1) {
		return ErrCQFull
	}
	if !pushWork(q.SQ, w, list, inline) {
		q.SendCQ.unreserve(1)
		return ErrSendQueueFull
	}
	return nil
}

// PostSends queues requests that have neither, two or more, together. All of them or none; it
// returns how many.
func (q *Engine) PostSends(run []WQE) int {
	n := min(len(run), q.SQ.Cap())
	if n < 2 || !q.SendCQ.reserve(int64(n)) {
		return 0
	}
	if !q.SQ.PushAll(run[:n]) {
		q.SendCQ.unreserve(int64(n))
		return 0
	}
	return n
}

// PostRecv queues a receive buffer.
func (q *Engine) PostRecv(w *WQE, list []SGE) error {
	if !q.RecvCQ.reserve(1) {
		return ErrCQFull
	}
	if !q.postable(1) {
		q.RecvCQ.unreserve(1)
		return ErrRecvQueueFull
	}
	pushWork(q.RQ, w, list, nil) // has room for recvDepth
	return nil
}

// PostRecvs is postSends of receive buffers.
func (q *Engine) PostRecvs(run []WQE) int {
	n := len(run)
	if n < 2 || !q.RecvCQ.reserve(int64(n)) {
		return 0
	}
	if !q.postable(int32(n)) {
		q.RecvCQ.unreserve(int64(n))
		return 0
	}
	q.RQ.PushAll(run) // has room for recvDepth
	return n
}

// postable counts n receive buffers as posted, if recvDepth allows so many more.
func (q *Engine) postable(n int32) bool {
	for {
		had := q.posted.Load()
		if had+n > int32(q.RecvDepth) {
			return false
		}
		if q.posted.CompareAndSwap(had, had+n) {
			return true
		}
	}
}
