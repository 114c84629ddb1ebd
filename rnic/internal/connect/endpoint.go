package connect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Endpoint is a queue pair as its connection sees it: what it wants of one, and what came of it.
// One connection after another may try for it (fallback.go), one is its.
type Endpoint struct {
	host   *Host
	engine *qp.Engine
	param  Param // from Connecting on

	Connection atomic.Pointer[Connection]
	Unwanted   atomic.Bool   // Abort, Disconnect or Close was called, perhaps before there was a connection
	sendsFirst atomic.Uint32 // SendFirst or PeerReady was called, perhaps before there was a connection
	stopDial   atomic.Pointer[context.CancelFunc]
	connected  chan error    // Connect's result, once
	Done       chan struct{} // closed with the QueuePair
	Private    []byte        // of the peer's Reply
	Terms      atomic.Pointer[mpa.Terms]

	// Of the goroutine (or the mutex) that drives the connection, until done is closed.
	Err   error
	final Counters
}

// Init readies e for q, whose connections will be h's.
func (e *Endpoint) Init(h *Host, q *qp.Engine) {
	e.host, e.engine = h, q
	e.connected, e.Done = make(chan error, 1), make(chan struct{})
}

// ConnectionOrUnwanted is the QueuePair's connection; when it is still coming about, it is marked
// as not wanted any more.
func (e *Endpoint) connectionOrUnwanted() *Connection {
	e.Unwanted.Store(true)
	if stop := e.stopDial.Load(); stop != nil {
		(*stop)()
	}
	return e.Connection.Load()
}

// join makes l the QueuePair's connection, unless Abort or Close came before. Whichever of the two
// looks second sees the other.
func (e *Endpoint) join(l *Connection) error {
	e.Connection.Store(l)
	if e.Unwanted.Load() {
		return ErrClosed
	}
	return nil
}

// Abort is QueuePair.Abort. Any goroutine.
func (e *Endpoint) Abort() {
	if l := e.connectionOrUnwanted(); l != nil {
		_ = order(l.Transport.Submit, func() { l.Fail(ErrClosed) })
	} else if e.engine.Move(qp.Idle, qp.Closed) {
		e.Conclude(ErrClosed)
	}
}

// Conclude is the last thing the connection's driver does to a QueuePair.
func (e *Endpoint) Conclude(err error) {
	e.Err = err
	e.engine.Finish()
	close(e.Done)
}

// Counters are those of an engine and its transport.
type Counters struct {
	Engine    qp.Stats
	Transport transport.Stats
}

// Snapshot is for the connection's driver.
func (e *Endpoint) snapshot(l *Connection) Counters {
	if e.engine.State() == qp.Closed {
		return e.final
	}
	return Counters{e.engine.Stats(), l.Transport.Stats()}
}

// Stats returns counters; after done those at the end. It asks the driving goroutine and may block
// until ctx ends.
func (e *Endpoint) Stats(ctx context.Context) (Counters, error) {
	l := e.Connection.Load()
	if l == nil {
		return Counters{}, nil
	}
	select {
	case <-e.Done: // and the Poller perhaps stopped
		return e.final, nil
	default:
	}
	ch := make(chan Counters, 1)
	if err := order(l.Transport.Submit, func() { ch <- e.snapshot(l) }); err != nil {
		return Counters{}, err
	}
	e.host.Turn()
	select {
	case s := <-ch:
		return s, nil
	case <-e.Done:
		return e.final, nil
	case <-ctx.Done():
		return Counters{}, ctx.Err()
	}
}

// MULPDU is the largest ULPDU of a segment, now. ErrState unless in service.
func (e *Endpoint) MULPDU(ctx context.Context) (int, error) {
	l := e.Connection.Load()
	if s := e.engine.State(); l == nil || s == qp.Idle || s == qp.Connecting || s == qp.Closed {
		return 0, ErrState
	}
	ch := make(chan int, 1)
	if err := order(l.Transport.Submit, func() { ch <- e.engine.MULPDU(l.Transport.EMSS()) }); err != nil {
		return 0, err
	}
	e.host.Turn()
	select {
	case n := <-ch:
		return n, nil
	case <-e.Done:
		return 0, ErrState
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Wake tells whoever drives the connection that work was posted. Any goroutine.
func (e *Endpoint) Wake() {
	if l := e.Connection.Load(); l != nil {
		l.Transport.Wake()
	}
}

// Disconnect begins an orderly end. Any goroutine.
func (e *Endpoint) Disconnect() {
	if l := e.connectionOrUnwanted(); l != nil {
		_ = order(l.Transport.Submit, l.shutdown) // a stopped Poller has ended it already
	}
}

// Addresses are this end's and the peer's, once the connection stands.
func (e *Endpoint) Addresses() (self, peer netip.AddrPort) {
	if l := e.Connection.Load(); l != nil && e.engine.State() != qp.Connecting {
		return l.self, l.Peer
	}
	return netip.AddrPort{}, netip.AddrPort{}
}

// tellEnd posts that a connection in service has ended, unless that was told already, as its
// Terminate, or this end wanted it.
func (e *Endpoint) tellEnd(told bool, err error) {
	if err == nil || told || errors.Is(err, ErrClosed) {
		return
	}
	e.engine.Tell(qp.EventFailed, 0, err)
}

// tellPeerClosed posts that the peer closed its half, unless this end has begun to close already.
func (e *Endpoint) tellPeerClosed(shut bool) {
	if !shut {
		e.engine.Tell(qp.EventPeerClosed, 0, nil)
	}
}

// BeginConnecting takes an idle QueuePair for a connection, with conn, which is valid, and room for
// the Requests that it may bring. An error leaves it Idle, except for ErrClosed, when Abort or
// Close has come: then it is Closed.
func (e *Endpoint) BeginConnecting(conn Param) error {
	if !e.engine.Move(qp.Idle, qp.Connecting) {
		return ErrState
	}
	conn.PrivateData = slices.Clone(conn.PrivateData)
	err := e.engine.Prepare(conn.IRD, conn.ORD)
	if err == nil {
		e.param = conn
		return nil
	}
	e.engine.Move(qp.Connecting, qp.Idle)
	if e.Unwanted.Load() && e.engine.Move(qp.Idle, qp.Closed) { // whichever of the two looks second sees the other
		e.Conclude(ErrClosed)
		return ErrClosed
	}
	return fmt.Errorf("rnic: queue pair's control region: %w", err)
}

// InService waits for the end of start-up. What has come of it goes before ctx's end: it may be a
// connection that is given back.
func (e *Endpoint) InService(ctx context.Context) error {
	var err error
	select {
	case err = <-e.connected:
	default:
		select {
		case err = <-e.connected:
		case <-ctx.Done():
			return e.giveUp(ctx)
		}
	}
	if err != nil {
		<-e.Done
	}
	return err
}

// giveUp ends start-up because ctx has ended. It returns ctx's error, or the rejection that came
// first and has a connection to be closed.
func (e *Endpoint) giveUp(ctx context.Context) error {
	e.Abort()
	select {
	case <-e.Done:
	case <-time.After(abortTimeout): // nobody turns the Poller
		return ctx.Err()
	}
	if l := e.Connection.Load(); l != nil && l.Returned != nil {
		return e.Err // a rejection
	}
	if errors.Is(e.Err, stack.ErrTentative) {
		return fmt.Errorf("%w: %w", stack.ErrTentative, ctx.Err())
	}
	return ctx.Err()
}

// abortTimeout bounds how long Connect waits, when its context has ended, for the connection's end.
const abortTimeout = time.Second
