package rnic

// PostSend queues a Send of wr.Local and wr.List, or of wr.Inline, with Solicited Event if wr says so. From the RTS state on, ErrState
// before; any goroutine. Once this end has called Disconnect, Close or Abort it is ErrClosed (DDP section 8.2.1); when the
// connection ended otherwise the request completes as Flushed. ErrSendQueueFull and ErrCQFull mean: not now. ErrListTooLong,
// ErrInlineTooLong, ErrTooLong and ErrShape are about wr. An error leaves nothing posted.
//
// The octets belong to the QueuePair until the request has completed. One that is not signaled shows that only when it fails:
// requests are carried out in order, so its octets are the application's again when a later request of the QueuePair has completed, or
// Done is closed.
func (q *QueuePair) PostSend(wr WorkRequest) error {
	return q.post(OpSend, &wr)
}

// PostWrite queues an RDMA Write of wr.Local and wr.List, or of wr.Inline, to wr.RemoteSTag at wr.RemoteOffset: one run of octets
// there. When and by whom: as PostSend.
func (q *QueuePair) PostWrite(wr WorkRequest) error {
	return q.post(OpWrite, &wr)
}

// post queues a request of the send queue that is about ranges or inline data, and rings the doorbell.
func (q *QueuePair) post(op Opcode, wr *WorkRequest) error {
	if err := q.mayPost(op, wr); err != nil {
		return err
	}
	w := wqeOf(op, wr)
	return q.enqueueAndRing(&w, wr)
}

// mayPost refuses what the request, the connection or its state cannot have.
func (q *QueuePair) mayPost(op Opcode, wr *WorkRequest) error {
	if err := q.checkShape(op, wr); err != nil {
		return err
	}
	if err := q.mayAsk(op); err != nil {
		return err
	}
	switch q.State() {
	case Idle, Connecting:
		return ErrState
	}
	if q.unwanted.Load() {
		return ErrClosed
	}
	return nil
}

// enqueue puts a request on the send ring, with its completion reserved.
func (q *QueuePair) enqueue(w *wqe, wr *WorkRequest) error {
	if !q.opt.SendCQ.reserve(1) {
		return ErrCQFull
	}
	if !pushWork(q.sq, w, wr.List, wr.Inline) {
		q.opt.SendCQ.unreserve(1)
		return ErrSendQueueFull
	}
	return nil
}

func (q *QueuePair) enqueueAndRing(w *wqe, wr *WorkRequest) error {
	err := q.enqueue(w, wr)
	if err == nil {
		q.doorbell()
	}
	return err
}

// doorbell has the send ring looked at: by whoever drives the connection, or by us when nobody does any more.
func (q *QueuePair) doorbell() {
	if q.State() == Closed {
		q.flush()
	} else if l := q.link.Load(); l != nil {
		l.car.wake()
	}
}
