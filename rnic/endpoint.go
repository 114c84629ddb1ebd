package rnic

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// endpoint is a queue pair as its connection sees it: what it wants of one, and what came of it. One connection after another
// may try for it (fallback.go), one is its.
type endpoint struct {
	adapter *Adapter
	engine  *qp.Engine
	conn    ConnParam // from Connecting on

	connection atomic.Pointer[connection]
	unwanted   atomic.Bool   // Abort, Disconnect or Close was called, perhaps before there was a connection
	early      atomic.Uint32 // SendFirst or PeerReady was called, perhaps before there was a connection
	stopDial   atomic.Pointer[context.CancelFunc]
	connected  chan error    // Connect's result, once
	done       chan struct{} // closed with the QueuePair
	private    []byte        // of the peer's Reply
	terms      atomic.Pointer[mpa.Terms]

	// Of the goroutine (or the mutex) that drives the connection, until done is closed.
	err   error
	final Stats
}

func (e *endpoint) init(a *Adapter, q *qp.Engine) {
	e.adapter, e.engine = a, q
	e.connected, e.done = make(chan error, 1), make(chan struct{})
}

// connectionOrUnwanted is the QueuePair's connection; when it is still coming about, it is marked as not wanted any more.
func (e *endpoint) connectionOrUnwanted() *connection {
	e.unwanted.Store(true)
	if stop := e.stopDial.Load(); stop != nil {
		(*stop)()
	}
	return e.connection.Load()
}

// join makes l the QueuePair's connection, unless Abort or Close came before. Whichever of the two looks second sees the
// other.
func (e *endpoint) join(l *connection) error {
	e.connection.Store(l)
	if e.unwanted.Load() {
		return ErrClosed
	}
	return nil
}

// abort is QueuePair.Abort. Any goroutine.
func (e *endpoint) abort() {
	if l := e.connectionOrUnwanted(); l != nil {
		_ = order(l.transport.Submit, func() { l.Fail(ErrClosed) })
	} else if e.engine.Move(qp.Idle, qp.Closed) {
		e.conclude(ErrClosed)
	}
}

// conclude is the last thing the connection's driver does to a QueuePair.
func (e *endpoint) conclude(err error) {
	e.err = err
	e.engine.Finish()
	close(e.done)
}

func (e *endpoint) snapshot(l *connection) Stats {
	if e.engine.State() == qp.Closed {
		return e.final
	}
	return statsOf(e.engine.Stats(), l.transport.Stats())
}

// tellEnd posts that a connection in service has ended, unless its Terminate was told already or this end wanted it.
func (e *endpoint) tellEnd(err error) {
	if err == nil || e.engine.Reported() || errors.Is(err, ErrClosed) {
		return
	}
	e.engine.Tell(qp.EventFailed, 0, err)
}

// tellPeerClosed posts that the peer closed its half, unless this end has begun to close already.
func (e *endpoint) tellPeerClosed(shut bool) {
	if !shut {
		e.engine.Tell(qp.EventPeerClosed, 0, nil)
	}
}
