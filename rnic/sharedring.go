package rnic

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
)

// srq is a queue of receive buffers for any number of engines.
//
//	post --> ring --a message that has no buffer yet--> engine, in the order of its messages --> Completion
type srq struct {
	sync.Mutex // of who posts, so that what left counts can be popped (mem.MPMC)

	depth int64
	ring  *mem.MPMC[sharedBuffer]
	left  atomic.Int64 // in ring, and nobody's yet
	limit atomic.Int64 // of arm; 0: not armed
	tell  func(left int64)
}

// sharedBuffer is a fixed, pointer-free ring entry.
type sharedBuffer struct {
	id     uint64
	count  int
	ranges [SharedSGEMax]ddp.Range
}

// init readies a queue of depth buffers, for which ring has room. tell is called, by any goroutine, when fewer are left than arm
// was told; it does not block.
func (s *srq) init(ring *mem.MPMC[sharedBuffer], depth int, tell func(left int64)) {
	s.ring, s.depth, s.tell = ring, int64(depth), tell
}

// post adds a buffer of first and list, SharedSGEMax ranges at most; false when depth are there. The lock is held.
func (s *srq) post(id uint64, first SGE, list []SGE) bool {
	if s.left.Load() >= s.depth {
		return false
	}
	b := sharedBuffer{id: id, count: 1 + len(list)}
	b.ranges[0] = rangeOf(first)
	for i := range list {
		b.ranges[1+i] = rangeOf(list[i])
	}
	for !s.ring.Push(b) {
		runtime.Gosched() // the slot's buffer was claimed, and is being popped this moment
	}
	s.left.Add(1)
	return true
}

// arm asks to be told once when fewer than limit buffers are left, at once if that is so already. 0 asks for nothing. Any goroutine.
func (s *srq) arm(limit int64) {
	s.limit.Store(limit)
	s.look(s.left.Load())
}

// remaining is the number of buffers that no engine has taken, a snapshot. Any goroutine.
func (s *srq) remaining() int64 { return s.left.Load() }

// size is how many buffers it holds.
func (s *srq) size() int64 { return s.depth }

// look tells when left is below the limit. Either its caller or arm, whoever comes second, sees both.
func (s *srq) look(left int64) {
	if limit := s.limit.Load(); left < limit && s.limit.CompareAndSwap(limit, 0) {
		s.tell(left)
	}
}

// claim takes n off the count: then pop has so many for the caller. All or none, so that who cannot be helped takes nothing from
// the others.
func (s *srq) claim(n int64) bool {
	for {
		left := s.left.Load()
		if left < n {
			return false
		}
		if s.left.CompareAndSwap(left, left-n) {
			s.look(left - n)
			return true
		}
	}
}

// pop is a buffer that was claimed.
func (s *srq) pop() sharedBuffer {
	b, ok := s.ring.Pop()
	if !ok {
		panic("rnic: a shared receive buffer was claimed and is not there")
	}
	return b
}

// takeShared has the SharedReceiveQueue fill the receive queue up to message msn, each buffer with its place in the CompletionQueue.
// Where there are not enough, or msn is farther ahead than RecvDepth allows, it takes none, and DDP finds none. False is an overflow of
// the CompletionQueue, which is the end of this stream. Driver's goroutine.
func (q *engine) takeShared(msn uint32) bool {
	r, s := &q.recv, q.srq
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
	if !q.recvCQ.reserve(n) {
		if s.left.Load() < n {
			return true
		}
		r.fault = ErrCQOverflow
		q.tell(EventCQOverflow, 0, nil)
		return false
	}
	if !s.claim(n) {
		q.recvCQ.unreserve(n)
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
func (q *engine) mayHold() int64 { return int64(q.recvDepth) - int64(q.posted.Load()) }

// sharedHeld is how many buffers of the SRQ this end holds.
func (q *engine) sharedHeld() int {
	if q.srq == nil {
		return 0
	}
	return int(q.posted.Load())
}
