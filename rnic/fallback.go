package rnic

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rnicd/rnicd/stack"
)

// A peer that does not know a dialect closes the connection, or answers with a lower Rev. The next dialect is then tried on a
// new connection (RFC 6581 section 10, DECISIONS 15): ConnParam.dialects says which, two in all at the most. A dialect that
// the application named is the only one.

// startupCounters are an Adapter's.
type startupCounters struct{ fallbacks, unaskedS, wakeUps atomic.Uint64 }

// StartupCounters of an Adapter.
type StartupCounters struct {
	Fallbacks uint64 // connections tried anew in an older dialect
	UnaskedS  uint64 // Replies with an S bit that their Request had not: the bit counts as zero
	WakeUps   uint64 // RDMA Writes of no octets for Quirks.WakeUp
}

// StartupCounters returns what happened in start-up so far. Any goroutine.
func (a *Adapter) StartupCounters() StartupCounters {
	return StartupCounters{
		Fallbacks: a.startup.fallbacks.Load(), UnaskedS: a.startup.unaskedS.Load(), WakeUps: a.startup.wakeUps.Load(),
	}
}

// initiate makes l the Initiator's connection for the first of the dialects.
func (l *connection) initiate(e *endpoint, tries []Dialect) {
	l.initiator, l.qp, l.end = true, e.engine, e
	l.dialect, l.older = tries[0], tries[1:]
	l.privateMax = privateMaxOr(e.conn.PrivateDataMax)
}

// fallsBack says whether a connection that is over is a reason to try an older dialect.
func (l *connection) fallsBack(was phase, err error) bool {
	if !l.initiator || len(l.older) == 0 || l.again == nil || l.end.unwanted.Load() {
		return false
	}
	var re *RevisionError
	return was == phaseReply && (errors.Is(err, ErrPeerClosed) || errors.Is(err, stack.ErrReset) || errors.As(err, &re) && re.Lower)
}

// failDial ends a QueuePair whose next connection could not be begun.
func (e *endpoint) failDial(err error) {
	if e.unwanted.Load() {
		err = ErrClosed
	}
	e.connected <- err
	e.conclude(err)
}

// dialPoller dials from one of the Adapter's Pollers.
func (e *endpoint) dialPoller(ctx context.Context, addr string) error {
	remote, err := resolve(ctx, addr)
	if err != nil {
		return err
	}
	a := e.adapter
	d := &pollerDial{end: e, pollerState: a.pollers[int(a.next.Add(1)-1)%len(a.pollers)]}
	d.dial = func(u stack.Upper) (*stack.Conn, error) { return d.pollerState.poller.Dial(remote, u) }
	return d.try(e.conn.dialects(), func(fn func()) error { return orderUntil(ctx, a, d.pollerState.poller.Submit, fn) })
}

// pollerDial is a QueuePair's way to a peer, for as many tries as it has dialects.
type pollerDial struct {
	end         *endpoint
	pollerState *pollerState
	dial        func(stack.Upper) (*stack.Conn, error)
}

// try begins a connection. order gets the rest to the Poller's goroutine.
func (d *pollerDial) try(tries []Dialect, order func(func()) error) error {
	l, u := newPollerConnection(d.end.adapter, d.pollerState)
	l.initiate(d.end, tries)
	l.again = func() { d.retry(l.older, d.pollerState.poller.Submit) } // on the Poller's goroutine, in the middle of a connection's end
	if err := d.end.join(l); err != nil {
		return err
	}
	if !d.end.adapter.addConnection(l) {
		return ErrClosed
	}
	err := order(func() {
		if l.err != nil { // Abort or Adapter.Close was quicker
			l.Over(l.err)
			return
		}
		u.Dial(d.dial)
	})
	if err != nil {
		d.end.adapter.dropConnection(l)
		close(l.gone) // nobody will drive it
	}
	return err
}

// retry is the next try. When the control ring is full a goroutine waits for room, for the Poller's cannot.
func (d *pollerDial) retry(tries []Dialect, submit func(func()) error) {
	err := d.try(tries, submit)
	switch {
	case errors.Is(err, stack.ErrBusy):
		go d.retry(tries, func(fn func()) error { return order(d.unlessUnwanted, fn) })
	case err != nil:
		d.end.failDial(err)
	}
}

func (d *pollerDial) unlessUnwanted(fn func()) error {
	if d.end.unwanted.Load() {
		return ErrClosed
	}
	return d.pollerState.poller.Submit(fn)
}

// redialKernel is the next try over the kernel's sockets.
func (e *endpoint) redialKernel(addr string, tries []Dialect) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	if err := e.dialSocket(ctx, addr, tries); err != nil {
		e.failDial(err)
	}
}
