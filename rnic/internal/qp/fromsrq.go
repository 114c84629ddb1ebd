package qp

import "github.com/rnicd/rnicd/internal/wq"

// takeShared takes buffers from the SRQ for the messages up to msn, and reserves their completions:
// all or none. With too few buffers, or when msn is farther ahead than RecvDepth allows, it takes
// none, and DDP ends the stream because the message has no buffer. False: RecvCQ has no room for
// the completions, which ends the stream, too.
func (q *Engine) takeShared(msn uint32) bool {
	r, s := &q.recv, q.SRQ
	n := int64(r.sendQ.Wants(msn))
	if n == 0 {
		return true
	}
	if r.fault != nil {
		return false // ready has asked for this message already
	}
	s.fill()
	if n > q.mayHold() {
		q.publishRecvs() // buffers that this segment has filled do not count
		if n > q.mayHold() {
			return true
		}
	}
	if !q.RecvCQ.Reserve(n) {
		if s.left.Load() < n {
			return true
		}
		r.fault = ErrCQOverflow
		q.Tell(wq.EventCQOverflow, 0, nil)
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

// Take takes a buffer for a message that comes by no engine into r, whose List has room for
// SharedSGEMax. False: there is none. Any goroutine.
func (s *SRQ) Take(r *wq.Request) bool {
	s.fill()
	if !s.claim(1) {
		return false
	}
	b := s.pop()
	more := copy(r.List, b.ranges[1:b.count])
	r.WQE = wq.WQE{ID: b.id, Op: wq.OpRecv, Local: b.ranges[0], More: uint8(more)}
	return true
}

// mayHold is how many more buffers the engine may take.
func (q *Engine) mayHold() int64 { return int64(q.RecvDepth) - int64(q.posted.Load()) }
