package engine

import (
	"errors"
	"sync/atomic"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Events, as enum ibv_event_type numbers them.
const (
	eventCQError    = 0
	eventQPFatal    = 1
	eventQPRequest  = 2
	eventQPAccess   = 3
	eventCommEst    = 4
	eventSQDrained  = 5
	eventPortActive = 9
	eventPortError  = 10
	eventSRQLimit   = 15
	eventQPLastWQE  = 16
	eventGIDChange  = 18
)

// opened is a device that the program has opened: where its asynchronous events go.
type opened struct {
	events atomic.Pointer[channel]
	itself subject // of events that are about no object
}

func (e *Engine) openContext(c *call) error {
	ctx := &opened{itself: subject{cookie: c.arg[1]}}
	ctx.events.Store(e.channels.open(int(int64(c.arg[0]))))
	c.out[0] = e.objects.add(ctx)
	return nil
}

func (e *Engine) closeContext(c *call) error {
	ctx, err := take[*opened](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if ch := ctx.events.Swap(nil); ch != nil {
		e.channels.close(ch.fd)
	}
	return nil
}

// tell sends an event about an object. Any goroutine.
func (x *opened) tell(kind uint32, about *subject) {
	about.tell(x.events.Load(), octets(&ring.AsyncEvent{Cookie: about.cookie, Type: kind}))
}

// tellEvents passes rnic's events on.
func (e *Engine) tellEvents(events <-chan rnic.Event) {
	for ev := range events {
		switch ev.Kind {
		case rnic.EventTerminated, rnic.EventFailed:
			if kind, ok := eventOf(ev.Err); ok {
				if q := e.qpOfRNIC(ev.QP); q != nil {
					q.abort.Do(func() { q.ctx.tell(kind, &q.subject) })
				}
			}
		case rnic.EventSRQLimit:
			if s := e.srqOfRNIC(ev.SRQ); s != nil {
				s.ctx.tell(eventSRQLimit, &s.subject)
			}
		}
	}
}

// eventOf is the event for an error that has ended a connection, by ibv_get_async_event(3). There
// is none where a completion says what was wrong with a request of the program's, nor where the
// connection is lost: RDMA_CM_EVENT_DISCONNECTED tells of that.
func eventOf(err error) (kind uint32, ok bool) {
	var end *rnic.TerminateError
	switch {
	case errors.Is(err, rnic.ErrHoarding):
		return eventQPFatal, true // we were short of packet buffers
	case !errors.As(err, &end):
		return 0, false
	case end.Remote:
		return eventQPFatal, true
	}
	const memory, message = 1, 2 // RFC 5040 section 4.8: types, alike in RDMAP and DDP
	switch layer, errType, _ := end.Control(); {
	case layer == framing:
		return eventQPFatal, true
	case errType == memory:
		return eventQPAccess, true
	case errType == message:
		return eventQPRequest, true
	}
	return eventQPFatal, true
}

const framing = 2 // RFC 5040 section 4.8: the layer of MPA, and with it start-up

// aboutMessages says that an end is about messages of the peer's or of ours, and so not about what
// was said at start-up.
func aboutMessages(err error) bool {
	var end *rnic.TerminateError
	if !errors.As(err, &end) {
		return errors.Is(err, rnic.ErrHoarding)
	}
	layer, _, _ := end.Control()
	return layer != framing
}

func (e *Engine) qpOfRNIC(r *rnic.QueuePair) *qp {
	for i := range e.qps {
		if q := e.qps[i].Load(); q != nil && q.rnic.Load() == r {
			return q
		}
	}
	return nil
}

func (e *Engine) srqOfRNIC(r *rnic.SharedReceiveQueue) *srq {
	e.objects.mu.Lock()
	defer e.objects.mu.Unlock()
	for _, o := range e.objects.all {
		if s, ok := o.(*srq); ok && s.rnic == r {
			return s
		}
	}
	return nil
}
