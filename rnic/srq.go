package rnic

import (
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// SRQOptions of CreateSRQ.
type SRQOptions struct {
	PD    *ProtectionDomain
	Depth int // buffers posted and not taken (default 128, up to SRQDepthMax)
	// Source, if set, is where buffers come from instead of PostRecv, which then is not to be called:
	// it posts those that wait elsewhere, until the feed refuses one. It is called when a message
	// needs a buffer, on the goroutine that drives the connection, and by Arm; never on two at a
	// time. It must not block, and call nothing of this package but the feed.
	Source func(SharedFeed)
}

// SharedFeed posts to a SharedReceiveQueue on behalf of SRQOptions.Source. It is valid during the
// call only.
type SharedFeed struct{ s *SharedReceiveQueue }

// Recv is PostRecv of one buffer.
func (f SharedFeed) Recv(wr *WorkRequest) error { return f.s.add(wr) }

// RecvEntry is Feed.RecvEntry.
func (f SharedFeed) RecvEntry(e *wq.WQE, list []SGE) error {
	switch {
	case e.Op != OpRecv || e.Inline():
		return ErrShape
	case 1+len(list) > SharedSGEMax:
		return ErrListTooLong
	case !f.s.q.Post(e.ID, e.Local, list):
		return ErrRecvQueueFull
	}
	return nil
}

// SharedReceiveQueue is a queue of receive buffers for any number of QueuePairs of its
// ProtectionDomain (QPOptions.SRQ), whichever Pollers or sockets carry them.
// docs/adr/0014-shared-receive-queue.md says what happens at its edges.
//
//	PostRecv --> ring --a message that has no buffer yet--> QueuePair, in the order of its messages --> Completion
//
// A QueuePair takes buffers when a segment of a message arrives, as many as the messages up to
// that one need, and holds RecvDepth at most; each then completes on that QueuePair's RecvCQ. It
// has no end of its own: after the end of its QueuePairs no connection takes what is left in it,
// and the buffers are the application's again.
type SharedReceiveQueue struct {
	adapter *Adapter
	pd      *ProtectionDomain
	q       qp.SRQ
}

// CreateSRQ makes an empty SharedReceiveQueue. The error says which option cannot be. Any
// goroutine.
func (a *Adapter) CreateSRQ(opt SRQOptions) (*SharedReceiveQueue, error) {
	if opt.Depth == 0 {
		opt.Depth = queueDepthDefault
	}
	switch {
	case opt.PD == nil:
		return nil, errors.New("rnic: SRQOptions needs PD")
	case opt.PD.adapter != a:
		return nil, errors.New("rnic: the protection domain belongs to another adapter")
	case opt.Depth < 1 || opt.Depth > SRQDepthMax:
		return nil, fmt.Errorf("rnic: shared receive queue depth %d wanted, 1 to %d possible", opt.Depth,
			SRQDepthMax)
	}
	s := &SharedReceiveQueue{adapter: a, pd: opt.PD}
	s.q.Init(
		mem.NewMPMC(takeSlots[mem.MPMCSlot[qp.SharedBuffer]](&a.rings, s, qp.RingSize(opt.Depth))),
		opt.Depth, s.tellLimit)
	if opt.Source != nil {
		s.q.TakeFrom(func() { opt.Source(SharedFeed{s}) })
	}
	return s, nil
}

// tellLimit posts that fewer buffers are left than Arm asked for.
func (s *SharedReceiveQueue) tellLimit(left int64) {
	s.adapter.events.post(Event{Kind: EventSRQLimit, SRQ: s, Count: uint64(left)})
}

// receiveRing is how many entries the QueuePair's own receive queue has.
func (o *QPOptions) receiveRing() int {
	if o.SRQ != nil {
		return qp.RingSize(1) // none is used
	}
	return qp.EntriesFor(o.RecvDepth, o.SGEMax, 0)
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
	s.q.Posting.Lock()
	defer s.q.Posting.Unlock()
	for ; n < len(wrs); n++ {
		if err = s.add(&wrs[n]); err != nil {
			break
		}
	}
	return n, err
}

// add is PostRecv of one buffer. The queue is locked, or has a Source, which calls.
func (s *SharedReceiveQueue) add(wr *WorkRequest) error {
	if err := checkRecv(wr, SharedSGEMax); err != nil {
		return err
	}
	if !s.q.Post(wr.ID, wr.Local, wr.List) {
		return ErrRecvQueueFull
	}
	return nil
}

// Arm requests one EventSRQLimit (Adapter.Events) for when fewer than limit buffers are left, at
// once if that is so already. It replaces an earlier request that has not been answered; 0 requests
// none. Any goroutine.
func (s *SharedReceiveQueue) Arm(limit int) error {
	if limit < 0 || limit > s.Depth() {
		return fmt.Errorf("rnic: shared receive queue limit %d wanted, 0 to %d possible",
			limit, s.Depth())
	}
	s.q.Arm(int64(limit))
	return nil
}

// Take takes a buffer for a message that comes by no QueuePair into r, whose List has room for
// SharedSGEMax ranges. False: there is none. Any goroutine that may not wait for another, as those
// of QueuePairs.
func (s *SharedReceiveQueue) Take(r *wq.Request) bool { return s.q.Take(r) }

// Armed is the limit that Arm was given, and 0 once its event has come. A snapshot. Any goroutine.
func (s *SharedReceiveQueue) Armed() int { return int(s.q.Limit()) }

// Left is the number of buffers that no QueuePair has taken, a snapshot. Any goroutine.
func (s *SharedReceiveQueue) Left() int { return int(s.q.Remaining()) }

// Depth is how many buffers it holds. Any goroutine.
func (s *SharedReceiveQueue) Depth() int { return int(s.q.Size()) }

// CQMinSize is the depth at which a CompletionQueue for queues of these depths cannot become full
// (RFC 5042 section 6.4.3.2): their sum. Pass the SendDepth of each QueuePair with this SendCQ, the
// RecvDepth of each with this RecvCQ and without an SRQ, and the number of buffers of each
// SharedReceiveQueue of the others, at most its Depth. 0 is the default depth. The application must
// not have more than SendDepth uncompleted requests on a QueuePair, although its ring may take
// more, and must poll the completion of a receive buffer before it posts the buffer again.
func CQMinSize(depths ...int) int {
	sum := 0
	for _, d := range depths {
		if d == 0 {
			d = queueDepthDefault
		}
		sum += d
	}
	return sum
}
