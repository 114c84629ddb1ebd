package connect

import (
	"context"
	"fmt"
	"net"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Delayed start-up (RFC 5044 sections 7.1.2 and 7.1.3, figure 9): two ULPs talk in streaming mode,
// agree on MPA, and begin it on the same connection, each half at the octet after its last
// streaming message.
//
//	Initiator                            Responder
//	<Hello>                ------------> AcceptStream with <Hello Ack>, its last streaming message:
//	reads it whole,        <------------ from here on what comes is MPA's
//	ConnectStream: Request ------------> a ConnRequest
//	in service             <------------ Accept: Reply
//
// The roles do not depend on which end dialled. A ULP that enters MPA gives the connection up: a
// *stream.Conn is detached, a *net.TCPConn closed in favour of a descriptor of ours. Nobody may be
// reading from it at that moment, and a bufio.Reader above it may have read too far.

// Carries says whether the Adapter can run MPA over conn.
func (h *Host) Carries(conn net.Conn) error {
	switch c := conn.(type) {
	case *net.TCPConn, *transport.BufferedConn:
		return nil
	case *stream.Conn:
		if h.pollerOf(c.Poller()) != nil {
			return nil
		}
		return fmt.Errorf("rnic: the connection's poller %q is none of the adapter's: name it in Config.Pollers", c.Poller().Name())
	}
	return fmt.Errorf("rnic: MPA starts on a *stream.Conn or a *net.TCPConn itself, not on a %T", conn)
}

// enterMPA puts a connection above conn. quiet: the peer has nothing to say before we do. role says
// what the connection is for, or that it is not wanted any more.
func (h *Host) enterMPA(ctx context.Context, conn net.Conn, quiet bool, role func(*Connection) error) (*Connection, error) {
	switch c := conn.(type) {
	case *stream.Conn:
		return h.fromStream(ctx, c, quiet, role)
	case *transport.BufferedConn:
		front := c.TakeRest()
		l, err := h.fromSocket(ctx, c.TCPConn, front, quiet, role)
		if err != nil {
			c.PutBack(front)
		}
		return l, err
	}
	return h.fromSocket(ctx, conn.(*net.TCPConn), nil, quiet, role)
}

func (h *Host) fromStream(ctx context.Context, c *stream.Conn, quiet bool, role func(*Connection) error) (*Connection, error) {
	l, u := newPollerConnection(h, h.pollerOf(c.Poller()))
	var refused error
	d, err := c.StartDetach(func(over stream.Handover) stack.Upper {
		if refused = l.mayTake(over, quiet, role); refused != nil {
			return nil
		}
		u.TakeOver(over)
		return u
	})
	if err != nil {
		return nil, err
	}
	_ = h.Wait(ctx, d.Done()) // Wait says what came of it
	if err := d.Wait(ctx); err != nil {
		if refused != nil {
			return nil, refused
		}
		return nil, err
	}
	return l, nil
}

// mayTake says why a connection is to stay a stream. Poller's goroutine.
func (l *Connection) mayTake(h stream.Handover, quiet bool, role func(*Connection) error) error {
	if quiet && (h.Edge > h.Read || h.Early > 0) {
		return ErrUnread
	}
	if !l.Host.addConnection(l) {
		return ErrClosed
	}
	err := role(l)
	if err != nil {
		l.Host.dropConnection(l)
		close(l.Gone) // nobody will drive it
	}
	return err
}

// fromSocket takes the connection away from nc, whose deadlines and whose Close shall not reach
// MPA. front was read from it already.
func (h *Host) fromSocket(ctx context.Context, nc *net.TCPConn, front []byte, quiet bool, role func(*Connection) error) (*Connection, error) {
	unread, err := transport.UnreadOctets(nc)
	switch {
	case err != nil:
		return nil, err
	case quiet && unread+len(front) > 0:
		return nil, ErrUnread
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	at, err := h.Places.Take()
	if err != nil {
		return nil, err
	}
	l, s, err := h.adoptSocket(nc, at)
	if err != nil {
		at.Leave()
		return nil, err
	}
	s.PutBack(front)
	_ = nc.Close()        // ends blocked calls on it, and nothing else: the descriptor has a twin
	_ = s.Submit(func() { // the QueuePair knows the connection from here on: Abort may come
		if err := role(l); err != nil {
			l.Fail(err) // run then finds a connection that is over, and tells the QueuePair
		}
	})
	s.Run()
	return l, nil
}

// adoptSocket makes a connection over a second descriptor of nc's connection.
func (h *Host) adoptSocket(nc *net.TCPConn, at *transport.Place) (*Connection, *transport.KernelConn, error) {
	f, err := nc.File()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // FileConn has one of its own
	own, err := net.FileConn(f)
	if err != nil {
		return nil, nil, err
	}
	l, s, err := newKernelConnection(h, own.(*net.TCPConn), at)
	if err != nil {
		_ = own.Close() // the error at hand says more
	}
	return l, s, err
}

// ConnectStream makes e the Initiator on a connection that was used in streaming mode until now. An
// error of the first kind leaves that as it was.
func (e *Endpoint) ConnectStream(ctx context.Context, c net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stopDial.Store(&cancel)
	if e.Unwanted.Load() {
		cancel()
	}
	tries := e.param.Tries[:1]        // there is but this connection
	quiet := tries[0] != mpa.Culley02 // whose Responder need not wait for us
	_, err := e.host.enterMPA(ctx, c, quiet, func(l *Connection) error {
		l.initiate(e, tries)
		return e.join(l)
	})
	if err != nil && e.Unwanted.Load() {
		return ErrClosed
	}
	return err
}

// RespondOn makes r the Responder on a connection that was used in streaming mode until now, after
// its last message there.
func (h *Host) RespondOn(ctx context.Context, conn net.Conn, last []byte, r *Responder) (*Connection, error) {
	return h.enterMPA(ctx, conn, len(last) > 0, func(l *Connection) error {
		l.respondFor(r)
		l.out = last
		return nil
	})
}

// DiscardSoon ends a connection whose Request nobody waits for any more. Any goroutine.
func (l *Connection) DiscardSoon(ctx context.Context) {
	_ = OrderUntil(context.WithoutCancel(ctx), l.Host, l.Transport.Submit, l.Discard) // a stopped Poller has ended it already
}
