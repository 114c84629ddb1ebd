package rnic

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
)

// EventKind says what an asynchronous event is about; package wq explains each.
type EventKind = wq.EventKind

const (
	EventTerminated  = wq.EventTerminated
	EventFailed      = wq.EventFailed
	EventPeerClosed  = wq.EventPeerClosed
	EventSRQLimit    = wq.EventSRQLimit
	EventCQOverflow  = wq.EventCQOverflow
	EventReceiveLow  = wq.EventReceiveLow
	EventReceiveHigh = wq.EventReceiveHigh
	EventSlowPath    = wq.EventSlowPath
)

// Event is something that happened to an object of the Adapter without a work request to complete
// for it (RFC 5042 section 2.2.7). What does not belong to its kind is zero.
type Event struct {
	Kind  EventKind
	QP    *QueuePair
	CQ    *CompletionQueue
	SRQ   *SharedReceiveQueue
	Count uint64
	Err   error
}

// eventQueue takes events from the packet path without waiting for anybody: what has no room is
// counted and lost.
type eventQueue struct {
	size   int
	asked  atomic.Bool // there is a channel
	mu     sync.Mutex  // of out and closed; held for no longer than the channel's own lock
	out    chan Event
	closed bool
	counts [wq.EventKinds]atomic.Uint64
	lost   atomic.Uint64
}

// post is for any goroutine.
func (q *eventQueue) post(e Event) {
	q.counts[e.Kind].Add(1)
	if !q.asked.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	select {
	case q.out <- e:
	default:
		q.lost.Add(1)
	}
}

// channel makes the channel where there is none.
func (q *eventQueue) channel() <-chan Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.out == nil {
		q.out = make(chan Event, q.size)
		q.asked.Store(true)
		if q.closed {
			close(q.out)
		}
	}
	return q.out
}

// close ends what is posted.
func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && q.out != nil {
		close(q.out)
	}
	q.closed = true
}

// Events returns the channel of asynchronous events, always the same, Config.EventsMax deep.
// Adapter.Close closes it when all connections have ended, so that a range over it ends. Events
// before the first call, and after Close, are counted and not kept. When the channel is full
// further events are lost and counted by EventsLost; nothing waits for the reader. Unread events
// keep their QueuePairs from being garbage-collected. Any goroutine.
//
// An event that QP left service may come before QueuePair.Done. QueuePair.Abort ends one whose peer
// takes too much.
func (a *Adapter) Events() <-chan Event { return a.events.channel() }

// EventCount is the number of events of kind k, with those that were lost or not read. Any
// goroutine.
func (a *Adapter) EventCount(k EventKind) uint64 {
	if k >= wq.EventKinds {
		return 0
	}
	return a.events.counts[k].Load()
}

// EventsLost is the number of events that were lost because the channel of Events was full. Any
// goroutine.
func (a *Adapter) EventsLost() uint64 { return a.events.lost.Load() }

// Arm requests one event of kind k (Adapter.Events), and replaces an earlier request for that kind
// that has not been answered; 0 requests none. Any goroutine, in any state.
//
//	EventReceiveLow   fewer than limit receive buffers are posted and not completed; at once if that is so. Not with an SRQ,
//	                  which has SharedReceiveQueue.Arm: ErrShared
//	EventReceiveHigh  more than limit receive buffers hold octets and are not delivered, for the peer leaves gaps
//	EventSlowPath     Stats.SlowPath is more than limit. It counts on from the beginning: arm again with Event.Count and some more
//
// They are checked after received octets were placed and delivered. All are countermeasures of RFC
// 5042 (sections 6.4.3.1 and 6.4.4): what a peer may take is bounded in any case; the ULP knows how
// much is unfair, and may Abort.
func (q *QueuePair) Arm(k EventKind, limit int) error {
	if limit < 0 || limit > math.MaxInt32 && k != EventSlowPath {
		return fmt.Errorf("rnic: threshold %d of event %v", limit, k)
	}
	switch k {
	case EventReceiveLow, EventReceiveHigh, EventSlowPath:
	default:
		return errors.New("rnic: no threshold belongs to event " + k.String())
	}
	if k == EventReceiveLow && q.opt.SRQ != nil {
		return ErrShared
	}
	q.engine.Arm(k, int64(limit))
	return nil
}

// teller posts events of q's engine and connection.
type teller struct{ q *QueuePair }

func (t teller) Tell(k EventKind, n uint64, err error) {
	e := Event{Kind: k, QP: t.q, Count: n, Err: err}
	if e.Kind == EventCQOverflow {
		e.CQ = t.q.opt.RecvCQ
	}
	t.q.adapter.events.post(e)
}
