package qp

// takeShared has the SharedReceiveQueue fill the receive queue up to message msn, each buffer with
// its place in the CompletionQueue. Where there are not enough, or msn is farther ahead than
// RecvDepth allows, it takes none, and DDP finds none. False is an overflow of the CompletionQueue,
// which is the end of this stream. Driver's goroutine.
func (q *Engine) takeShared(msn uint32) bool {
	r, s := &q.recv, q.SRQ
	n := int64(r.sendQ.Wants(msn))
	if n == 0 {
		return true
	}
	if n > q.mayHold() {
		q.publishRecvs() // those of this segment that are filled already do not count
		if n > q.mayHold() {
			return true
		}
	}
	if !q.RecvCQ.reserve(n) {
		if s.left.Load() < n {
			return true
		}
		r.fault = ErrCQOverflow
		q.Tell(EventCQOverflow, 0, nil)
		return false
	}
	if !s.claim(n) {
		q.RecvCQ.unreserve(n)
		return true
	}
	q.posted.Add(int32(n))
	r.taken += uint64(n)
	for range n {
		b := s.pop()
		r.sendQ.PostList(b.id, b.ranges[:b.count]) // has room for RecvDepth
	}
	return true
}

// mayHold is how many buffers more the QueuePair may take.
func (q *Engine) mayHold() int64 { return int64(q.RecvDepth) - int64(q.posted.Load()) }
