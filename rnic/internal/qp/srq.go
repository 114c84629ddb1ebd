package qp

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
)

// SRQ is a queue of receive buffers for any number of engines.
//
//	post --> ring --a message that has no buffer yet--> engine, in the order of its messages --> Completion
type SRQ struct {
	Posting sync.Mutex // held by a caller of Post, so that what left counts can be popped (mem.MPMC)

	depth int64
	ring  *mem.MPMC[SharedBuffer]
	left  atomic.Int64 // in ring, and nobody's yet
	limit atomic.Int64 // of arm; 0: not armed
	tell  func(left int64)
}

// SharedBuffer is a fixed, pointer-free ring entry.
type SharedBuffer struct {
	id     uint64
	count  int
	ranges [SharedSGEMax]ddp.Range
}

// Init readies a queue of depth buffers, for which ring has room. tell is called, by any goroutine,
// when fewer are left than arm was told; it does not block.
func (s *SRQ) Init(ring *mem.MPMC[SharedBuffer], depth int, tell func(left int64)) {
	s.ring, s.depth, s.tell = ring, int64(depth), tell
}

// Post adds a buffer of first and list, SharedSGEMax ranges at most; false when depth are there.
// The caller holds Posting.
func (s *SRQ) Post(id uint64, first SGE, list []SGE) bool {
	if s.left.Load() >= s.depth {
		return false
	}
	b := SharedBuffer{id: id, count: 1 + len(list)}
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

// Arm asks to be told once when fewer than limit buffers are left, at once if that is so already. 0
// asks for nothing. Any goroutine.
func (s *SRQ) Arm(limit int64) {
	s.limit.Store(limit)
	s.checkLimit(s.left.Load())
}

// Remaining is the number of buffers that no engine has taken, a snapshot. Any goroutine.
func (s *SRQ) Remaining() int64 { return s.left.Load() }

// Size is how many buffers it holds.
func (s *SRQ) Size() int64 { return s.depth }

// look tells when left is below the limit. Either its caller or arm, whoever comes second, sees
// both.
func (s *SRQ) checkLimit(left int64) {
	if limit := s.limit.Load(); left < limit && s.limit.CompareAndSwap(limit, 0) {
		s.tell(left)
	}
}

// claim takes n off the count: then pop has so many for the caller. All or none, so that a caller
// that cannot be helped takes nothing from the others.
func (s *SRQ) claim(n int64) bool {
	for {
		left := s.left.Load()
		if left < n {
			return false
		}
		if s.left.CompareAndSwap(left, left-n) {
			s.checkLimit(left - n)
			return true
		}
	}
}

// pop is a buffer that was claimed.
func (s *SRQ) pop() SharedBuffer {
	b, ok := s.ring.Pop()
	if !ok {
		panic("rnic: a shared receive buffer was claimed and is not there")
	}
	return b
}
