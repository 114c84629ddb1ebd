package qp

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// SRQ is a queue of receive buffers for any number of engines.
//
//	Post --> ring --a message has no buffer yet--> engine, in the order of its messages --> CQE
type SRQ struct {
	// Posting is held by callers of Post: with one producer at a time no element hides a later one
	// (mem.MPMC), so as many as left counts can be popped.
	Posting sync.Mutex

	depth int64
	ring  *mem.MPMC[SharedBuffer]
	left  atomic.Int64 // buffers in ring that no engine has claimed
	limit atomic.Int64 // Arm's; 0: not armed
	tell  func(left int64)

	source  func() // posts buffers that wait elsewhere, as far as there is room; nil: none
	filling atomic.Bool
}

// SharedBuffer is a fixed, pointer-free ring entry.
type SharedBuffer struct {
	id     uint64
	count  int
	ranges [SharedSGEMax]wq.SGE
}

// Init makes a queue of depth buffers. ring has room for that many. tell is called on any goroutine
// when fewer buffers are left than the limit that Arm was given; it must not block.
func (s *SRQ) Init(ring *mem.MPMC[SharedBuffer], depth int, tell func(left int64)) {
	s.ring, s.depth, s.tell = ring, int64(depth), tell
}

// TakeFrom makes source, which posts buffers that wait elsewhere, the only one that calls Post. It
// is called when buffers are needed, on the goroutine of an engine, one at a time, and must not
// block. Before use.
func (s *SRQ) TakeFrom(source func()) { s.source = source }

// fill has the source post. An engine that finds another one at it waits for that: what both need
// may be in there.
func (s *SRQ) fill() {
	if s.source == nil {
		return
	}
	for !s.filling.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
	s.source()
	s.filling.Store(false)
}

// Post adds a buffer of first and list, SharedSGEMax ranges at most; false: the queue is full.
// The caller holds Posting, or is the source.
func (s *SRQ) Post(id uint64, first wq.SGE, list []wq.SGE) bool {
	if s.left.Load() >= s.depth {
		return false
	}
	b := SharedBuffer{id: id, count: 1 + len(list)}
	b.ranges[0] = first
	copy(b.ranges[1:], list)
	for !s.ring.Push(b) {
		runtime.Gosched() // an engine has claimed the slot's buffer and is about to pop it
	}
	s.left.Add(1)
	return true
}

// Arm has tell called once when fewer than limit buffers are left, at once if that is so already. 0
// withdraws it. Any goroutine.
func (s *SRQ) Arm(limit int64) {
	s.fill()
	s.limit.Store(limit)
	s.checkLimit(s.left.Load())
}

// Limit is what Arm was given, and 0 once tell was called for it. A snapshot. Any goroutine.
func (s *SRQ) Limit() int64 { return s.limit.Load() }

// Remaining is the number of buffers that no engine has taken, a snapshot. Any goroutine.
func (s *SRQ) Remaining() int64 { return s.left.Load() }

// Size is how many buffers the queue can hold.
func (s *SRQ) Size() int64 { return s.depth }

// checkLimit calls tell, and disarms, when left is below the limit. claim lowers left and then
// reads the limit; Arm sets the limit and then reads left. So one of the two sees both.
func (s *SRQ) checkLimit(left int64) {
	if limit := s.limit.Load(); left < limit && s.limit.CompareAndSwap(limit, 0) {
		s.tell(left)
	}
}

// claim takes n buffers off the count, all or none; the caller then pops that many.
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

// pop returns a buffer that was claimed.
func (s *SRQ) pop() SharedBuffer {
	b, ok := s.ring.Pop()
	if !ok {
		panic("rnic: a shared receive buffer was claimed and is not there")
	}
	return b
}
