package rnic

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
)

// SRQOptions of CreateSRQ.
type SRQOptions struct {
	PD    *ProtectionDomain
	Depth int // buffers posted and not taken (default 128, up to SRQDepthMax)
}

// SharedReceiveQueue is a queue of receive buffers for any number of QueuePairs of its ProtectionDomain (QPOptions.SRQ), whichever
// Pollers or sockets carry them. docs/adr/0014-shared-receive-queue.md says what happens at its edges.
//
//	PostRecv --> ring --a message that has no buffer yet--> QueuePair, in the order of its messages --> Completion
//
// A QueuePair takes buffers when a segment of a message arrives, as many as the messages up to that one need, and holds RecvDepth
// at most; each then completes on that QueuePair's RecvCQ. It has no end of its own: behind the end of its QueuePairs nobody takes
// what is left in it, and the buffers are the application's again.
type SharedReceiveQueue struct {
	adapter *Adapter
	pd      *ProtectionDomain
	depth   int64

	mu   sync.Mutex // of who posts, so that what left counts can be popped (mem.MPMC)
	ring *mem.MPMC[sharedBuffer]

	left  atomic.Int64 // in ring, and nobody's yet
	limit atomic.Int64 // of Arm; 0: not armed
}

// sharedBuffer is a fixed, pointer-free ring entry.
type sharedBuffer struct {
	id     uint64
	count  int
	ranges [SharedSGEMax]ddp.Range
}

// CreateSRQ makes an empty SharedReceiveQueue. The error says which option cannot be. Any goroutine.
func (a *Adapter) CreateSRQ(opt SRQOptions) (*SharedReceiveQueue, error) {
	if opt.Depth == 0 {
		opt.Depth = QueueDepthDefault
	}
	switch {
	case opt.PD == nil:
		return nil, errors.New("rnic: SRQOptions needs PD")
	case opt.PD.adapter != a:
		return nil, errors.New("rnic: the protection domain belongs to another adapter")
	case opt.Depth < 1 || opt.Depth > SRQDepthMax:
		return nil, fmt.Errorf("rnic: shared receive queue depth %d wanted, 1 to %d possible", opt.Depth, SRQDepthMax)
	}
	s := &SharedReceiveQueue{adapter: a, pd: opt.PD, depth: int64(opt.Depth)}
	s.ring = mem.NewMPMC(takeSlots[mem.MPMCSlot[sharedBuffer]](&a.rings, s, ringSize(opt.Depth)))
	return s, nil
}

// receiveRing is how many entries the QueuePair's own receive queue has.
func (o *QPOptions) receiveRing() int {
	if o.SRQ != nil {
		return ringSize(1) // of which none is used
	}
	return entriesFor(o.RecvDepth, o.SGEMax, 0)
}

// receiveRanges is how many ranges a receive buffer may have.
func (o *QPOptions) receiveRanges() int {
	if o.SRQ != nil {
		return SharedSGEMax
	}
	return o.SGEMax
}

// PostRecv adds buffers, Local and List of each, for the next messages of any of the QueuePairs, as
// ibv_post_srq_recv does. It reserves no completions: a QueuePair does that when it takes a buffer.
// The octets are the QueuePairs' until the Completion, whose QP says which has used it. Any
// goroutine; those that post at once wait for each other.
//
// The first n were posted; err is about wrs[n]: ErrRecvQueueFull when Depth are there,
// ErrListTooLong when it has more than SharedSGEMax ranges, ErrShape.
func (s *SharedReceiveQueue) PostRecv(wrs ...WorkRequest) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n < len(wrs); n++ {
		if err = s.add(&wrs[n]); err != nil {
			break
		}
	}
	return n, err
}

// add is PostRecv of one buffer. mu is held.
func (s *SharedReceiveQueue) add(wr *WorkRequest) error {
	if err := checkRecv(wr, SharedSGEMax); err != nil {
		return err
	}
	if s.left.Load() >= s.depth {
		return ErrRecvQueueFull
	}
	b := sharedBuffer{id: wr.ID, count: 1 + len(wr.List)}
	b.ranges[0] = rangeOf(wr.Local)
	for i := range wr.List {
		b.ranges[1+i] = rangeOf(wr.List[i])
	}
	for !s.ring.Push(b) {
		runtime.Gosched() // the slot's buffer was claimed, and is being popped this moment
	}
	s.left.Add(1)
	return nil
}

// Arm asks for one EventSRQLimit (Adapter.Events) when fewer than limit buffers are left, at once if that is so already. It replaces
// what was asked before and has not come; 0 asks for nothing. Any goroutine.
func (s *SharedReceiveQueue) Arm(limit int) error {
	if limit < 0 || int64(limit) > s.depth {
		return fmt.Errorf("rnic: shared receive queue limit %d wanted, 0 to %d possible", limit, s.depth)
	}
	s.limit.Store(int64(limit))
	s.look(s.left.Load())
	return nil
}

// Left is the number of buffers that no QueuePair has taken, a snapshot. Any goroutine.
func (s *SharedReceiveQueue) Left() int { return int(s.left.Load()) }

// Depth is how many buffers it holds.
func (s *SharedReceiveQueue) Depth() int { return int(s.depth) }

// look posts the event when left is below the limit. Either its caller or Arm, whoever comes second, sees both.
func (s *SharedReceiveQueue) look(left int64) {
	if limit := s.limit.Load(); left < limit && s.limit.CompareAndSwap(limit, 0) {
		s.adapter.events.post(Event{Kind: EventSRQLimit, SRQ: s, Count: uint64(left)})
	}
}

// claim takes n off the count: then pop has so many for the caller. All or none, so that who cannot be helped takes nothing from
// the others.
func (s *SharedReceiveQueue) claim(n int64) bool {
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
func (s *SharedReceiveQueue) pop() sharedBuffer {
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

// CQMinSize is how deep a CompletionQueue must be that takes all completions of queues of these depths, so that it never holds up
// or overflows (RFC 5042 section 6.4.3.2): their sum. Name SendDepth of each QueuePair whose SendCQ it is, RecvDepth of each whose
// RecvCQ it is and that has no SRQ, and for each SharedReceiveQueue of such the number of buffers that there are for it, Depth at
// most. 0 is the default depth. It holds if of no QueuePair more than SendDepth requests are posted and not completed, for its ring may
// take more, and if a receive buffer is posted again only when its completion was polled.
func CQMinSize(depths ...int) int {
	sum := 0
	for _, d := range depths {
		if d == 0 {
			d = QueueDepthDefault
		}
		sum += d
	}
	return sum
}

// sharedHeld is how many buffers of the SRQ this end holds.
func (q *engine) sharedHeld() int {
	if q.srq == nil {
		return 0
	}
	return int(q.posted.Load())
}
