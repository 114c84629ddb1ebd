package connect

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// A peer that does not know a dialect closes the connection, or answers with a lower Rev. The next
// dialect is then tried on a new connection (RFC 6581 section 10, DECISIONS 15): ConnParam.dialects
// says which, two in all at the most. A dialect that the application named is the only one.

// startupCounters are an Adapter's.
type startupCounters struct{ Fallbacks, UnaskedS, WakeUps atomic.Uint64 }

// initiate makes l the Initiator's connection for the first of the dialects.
func (l *Connection) initiate(e *Endpoint, tries []mpa.Dialect) {
	l.initiator, l.engine, l.endpoint = true, e.engine, e
	l.dialect, l.older = tries[0], tries[1:]
	l.privateMax = e.param.PrivateDataMax
}

// fallsBack says whether a connection that is over is a reason to try an older dialect.
func (l *Connection) fallsBack(was phase, err error) bool {
	if !l.initiator || len(l.older) == 0 || l.again == nil || l.endpoint.Unwanted.Load() {
		return false
	}
	var re *Revision
	return was == phaseReply && (errors.Is(err, ErrPeerClosed) || errors.Is(err, stack.ErrReset) || errors.As(err, &re) && re.Lower)
}

// failDial ends a QueuePair whose next connection could not be begun.
func (e *Endpoint) failDial(err error) {
	if e.Unwanted.Load() {
		err = ErrClosed
	}
	e.connected <- err
	e.Conclude(err)
}

// dialPoller dials from one of the Adapter's Pollers.
func (e *Endpoint) dialPoller(ctx context.Context, addr string) error {
	remote, err := resolve(ctx, addr)
	if err != nil {
		return err
	}
	h := e.host
	d := &pollerDial{end: e, pollerState: h.Pollers[int(h.next.Add(1)-1)%len(h.Pollers)]}
	d.dial = func(u stack.Upper) (*stack.Conn, error) { return d.pollerState.Poller.Dial(remote, u) }
	return d.try(e.param.Tries, func(fn func()) error { return OrderUntil(ctx, h, d.pollerState.Poller.Submit, fn) })
}

// pollerDial is a QueuePair's way to a peer, for as many tries as it has dialects.
type pollerDial struct {
	end         *Endpoint
	pollerState *PollerState
	dial        func(stack.Upper) (*stack.Conn, error)
}

// try begins a connection. order gets the rest to the Poller's goroutine.
func (d *pollerDial) try(tries []mpa.Dialect, submit func(func()) error) error {
	l, u := newPollerConnection(d.end.host, d.pollerState)
	l.initiate(d.end, tries)
	l.again = func() { d.retry(l.older, d.pollerState.Poller.Submit) } // on the Poller's goroutine, in the middle of a connection's end
	if err := d.end.join(l); err != nil {
		return err
	}
	if !d.end.host.addConnection(l) {
		return ErrClosed
	}
	err := submit(func() {
		if l.Err != nil { // Abort or Adapter.Close was quicker
			l.Over(l.Err)
			return
		}
		u.Dial(d.dial)
	})
	if err != nil {
		d.end.host.dropConnection(l)
		close(l.Gone) // nobody will drive it
	}
	return err
}

// retry is the next try. When the control ring is full a goroutine waits for room, for the Poller's
// cannot.
func (d *pollerDial) retry(tries []mpa.Dialect, submit func(func()) error) {
	err := d.try(tries, submit)
	switch {
	case errors.Is(err, stack.ErrBusy):
		go d.retry(tries, func(fn func()) error { return order(d.unlessUnwanted, fn) })
	case err != nil:
		d.end.failDial(err)
	}
}

func (d *pollerDial) unlessUnwanted(fn func()) error {
	if d.end.Unwanted.Load() {
		return ErrClosed
	}
	return d.pollerState.Poller.Submit(fn)
}

// redialKernel is the next try over the kernel's sockets.
func (e *Endpoint) redialKernel(addr string, tries []mpa.Dialect) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	if err := e.dialSocket(ctx, addr, tries); err != nil {
		e.failDial(err)
	}
}
