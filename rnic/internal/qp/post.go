package qp

import "github.com/rnicd/rnicd/internal/wq"

// Posting is for any goroutine, before, in and after service. A caller that finds the engine Closed
// after it has posted calls Flush.

// MayAsk refuses requests for which the connection's dialect has no messages, or its ORD no room.
// It says nothing about the state: the caller refuses what is posted before service.
func (q *Engine) MayAsk(op wq.Opcode) error {
	if op.Extended() && q.unextended.Load() || op == wq.OpSendImmediate && q.plain.Load() {
		return ErrExtension
	}
	if op.IsRequest() {
		if s := q.State(); s != wq.Idle && s != wq.Connecting && q.ord == 0 {
			return ErrReadDepth
		}
	}
	return nil
}

// PostSend reserves a completion and queues a request of the send queue, with its list or its
// inline octets.
func (q *Engine) PostSend(w *wq.WQE, list []wq.SGE, inline []byte) error {
	if !q.SendCQ.Reserve(1) {
		return ErrCQFull
	}
	if !pushWork(q.SQ, w, list, inline) {
		q.SendCQ.unreserve(1)
		return ErrSendQueueFull
	}
	return nil
}

// PostSends queues two or more requests that have neither, together: all of them or none. It
// returns how many. With none, PostSend says why.
func (q *Engine) PostSends(run []wq.WQE) int {
	n := min(len(run), q.SQ.Cap())
	if n < 2 || !q.SendCQ.Reserve(int64(n)) {
		return 0
	}
	if !q.SQ.PushAll(run[:n]) {
		q.SendCQ.unreserve(int64(n))
		return 0
	}
	return n
}

// PostRecv queues a receive buffer.
func (q *Engine) PostRecv(w *wq.WQE, list []wq.SGE) error {
	if err := q.reserveRecv(); err != nil {
		return err
	}
	pushWork(q.RQ, w, list, nil) // has room for RecvDepth
	return nil
}

// reserveRecv counts a receive buffer as posted, and reserves its completion.
func (q *Engine) reserveRecv() error {
	if !q.RecvCQ.Reserve(1) {
		return ErrCQFull
	}
	if !q.postable(1) {
		q.RecvCQ.unreserve(1)
		return ErrRecvQueueFull
	}
	return nil
}

// PostRecvs is PostSends for receive buffers.
func (q *Engine) PostRecvs(run []wq.WQE) int {
	n := len(run)
	if n < 2 || !q.RecvCQ.Reserve(int64(n)) {
		return 0
	}
	if !q.postable(int32(n)) {
		q.RecvCQ.unreserve(int64(n))
		return 0
	}
	q.RQ.PushAll(run) // has room for RecvDepth
	return n
}

// SendHere has the request in r, which FillSends was given, carried out next, from there.
func (q *Engine) SendHere(r *wq.Request) error {
	if !q.SendCQ.Reserve(1) {
		return ErrCQFull
	}
	r.Ready = true
	return nil
}

// RecvHere is SendHere of a receive buffer.
func (q *Engine) RecvHere(r *wq.Request) error {
	err := q.reserveRecv()
	r.Ready = err == nil
	return err
}

// postable counts n more receive buffers as posted, if RecvDepth allows them: all or none, and
// while it refuses nothing is taken from others (as CQ.reserve).
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
