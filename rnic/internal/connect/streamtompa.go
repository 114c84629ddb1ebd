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
// *stream.Conn is detached, a *net.TCPConn closed and replaced by a second descriptor of ours.
// Nobody may be reading from it at that moment, and a bufio.Reader above it may have read too far.

// Carries says whether the Adapter can run MPA over conn. Any goroutine.
func (h *Host) Carries(conn net.Conn) error {
	switch nc := conn.(type) {
	case *net.TCPConn, *transport.BufferedConn:
		return nil
	case *stream.Conn:
		if h.StateOf(nc.Poller()) != nil {
			return nil
		}
		return fmt.Errorf("rnic: the connection's poller %q is none of the adapter's: name it in "+
			"Config.Pollers", nc.Poller().Name())
	}
	return fmt.Errorf("rnic: MPA starts on a *stream.Conn or a *net.TCPConn itself, not on a %T", conn)
}

// ConnectStream makes e the Initiator on a connection that was used in streaming mode until now.
// nc is what Carries accepts. Any goroutine, after BeginConnecting. After an error from here nc may
// still be used as a stream; how start-up ends is InService's to say.
func (e *Endpoint) ConnectStream(ctx context.Context, nc net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stopDial.Store(&cancel)
	if e.Unwanted.Load() {
		cancel()
	}
	tries := e.param.tries()[:1]      // there is only this connection
	quiet := tries[0] != mpa.Culley02 // whose Responder need not wait for us
	_, err := e.host.enterMPA(ctx, nc, quiet, func(c *Connection) error {
		c.initiate(e, tries)
		return e.join(c)
	})
	if err != nil && e.Unwanted.Load() {
		return ErrClosed
	}
	return err
}

// RespondOn makes r the Responder on a connection that was used in streaming mode until now. last,
// if not empty, is the last message of that, which is still to be sent. Any goroutine.
func (h *Host) RespondOn(ctx context.Context, nc net.Conn, last []byte,
	r *Responder) (*Connection, error) {
	return h.enterMPA(ctx, nc, len(last) > 0, func(c *Connection) error {
		c.respondFor(r)
		c.out = last
		return nil
	})
}

// enterMPA puts a connection above conn. With quiet, unread octets are ErrUnread:
// the peer has nothing to say before we do. role says what the connection is for, or that it is not
// wanted any more.
func (h *Host) enterMPA(ctx context.Context, conn net.Conn, quiet bool,
	role func(*Connection) error) (*Connection, error) {
	switch nc := conn.(type) {
	case *stream.Conn:
		return h.fromStream(ctx, nc, quiet, role)
	case *transport.BufferedConn:
		rest := nc.TakeRest()
		c, err := h.fromSocket(ctx, nc.TCPConn, rest, quiet, role)
		if err != nil {
			nc.PutBack(rest)
		}
		return c, err
	}
	return h.fromSocket(ctx, conn.(*net.TCPConn), nil, quiet, role)
}

func (h *Host) fromStream(ctx context.Context, sc *stream.Conn, quiet bool,
	role func(*Connection) error) (*Connection, error) {
	c, u := newPollerConnection(h, h.StateOf(sc.Poller()))
	var refused error
	d, err := sc.StartDetach(func(over stream.Handover) stack.Upper {
		if refused = c.mayTake(over, quiet, role); refused != nil {
			return nil
		}
		u.TakeOver(over)
		return c
	})
	if err != nil {
		return nil, err
	}
	_ = h.Wait(ctx, d.Done()) // d.Wait says what came of it
	if err := d.Wait(ctx); err != nil {
		if refused != nil {
			return nil, refused
		}
		return nil, err
	}
	return c, nil
}

// mayTake says why a connection is to stay a stream. Poller's goroutine.
func (c *Connection) mayTake(over stream.Handover, quiet bool, role func(*Connection) error) error {
	if quiet && (over.Edge > over.Read || over.Early > 0) {
		return ErrUnread
	}
	if !c.Host.addConnection(c) {
		return ErrClosed
	}
	err := role(c)
	if err != nil {
		c.Host.dropConnection(c)
		c.Gone.Give() // no transport will drive it
	}
	return err
}

// fromSocket takes the connection away from nc, so that deadlines and Close of nc do not reach MPA.
// rest was read from it already.
func (h *Host) fromSocket(ctx context.Context, nc *net.TCPConn, rest []byte, quiet bool,
	role func(*Connection) error) (*Connection, error) {
	unread, err := transport.UnreadOctets(nc)
	switch {
	case err != nil:
		return nil, err
	case quiet && unread+len(rest) > 0:
		return nil, ErrUnread
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	at, err := h.takeSlot()
	if err != nil {
		return nil, err
	}
	c, s, err := newKernelConnection(h, nc, at)
	if err != nil {
		at.Free()
		return nil, err
	}
	_ = s.Submit(func() { // the queue pair knows the connection from here on: Abort may come
		if err := role(c); err != nil {
			c.Fail(err) // Run then finds a connection that is over, and finishes the queue pair
		}
	})
	s.Run(rest)
	return c, nil
}

// DiscardSoon ends a connection whose Request is no longer waited for. Any goroutine. It may
// block while the Poller's control ring is full.
func (c *Connection) DiscardSoon(ctx context.Context) {
	// a stopped Poller has ended it already
	_ = OrderUntil(context.WithoutCancel(ctx), c.Host, c.Transport.Submit, c.Discard)
}
