package engine

import (
	"sync/atomic"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/ring"
)

// Events, as enum ibv_event_type numbers them.
const (
	eventCQError  = 0
	eventQPFatal  = 1
	eventSRQLimit = 15
)

// opened is a device that the program has opened: where its asynchronous events go.
type opened struct {
	events atomic.Pointer[channel]
}

func (e *Engine) openContext(c *call) error {
	ctx := &opened{}
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
			if q := e.qpOfRNIC(ev.QP); q != nil && !q.gone.Load() {
				q.abort.Do(func() { q.ctx.tell(eventQPFatal, &q.subject) })
			}
		case rnic.EventSRQLimit:
			if s := e.srqOfRNIC(ev.SRQ); s != nil {
				s.ctx.tell(eventSRQLimit, &s.subject)
			}
		}
	}
}

func (e *Engine) qpOfRNIC(r *rnic.QueuePair) *qp {
	for i := range e.qps {
		if q := e.qps[i].Load(); q != nil && q.rnic == r {
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
