package rnic

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Delayed start-up (RFC 5044 sections 7.1.2 and 7.1.3, figure 9): two ULPs talk in streaming mode, agree on MPA, and begin it on
// the same connection, each half at the octet behind its last streaming message.
//
//	Initiator                            Responder
//	<Hello>                ------------> AcceptStream with <Hello Ack>, its last streaming message:
//	reads it whole,        <------------ from here on what comes is MPA's
//	ConnectStream: Request ------------> a ConnRequest
//	in service             <------------ Accept: Reply
//
// The roles have nothing to do with who dialled. Whoever enters MPA gives the connection up: a *stream.Conn is detached, a
// *net.TCPConn closed in favour of a descriptor of ours. Nobody may be reading from it at that moment, and a bufio.Reader
// above it may have read too far.

// ConnectStream brings an idle QueuePair into service as MPA Initiator on a connection that was used in streaming mode
// until now, and returns when the Responder has accepted, as Connect does. c is a *stream.Conn of one of the
// Adapter's Pollers, a *net.TCPConn, or what a rejection gave back. Everything the Responder wrote must have been read: else the error is ErrUnread and
// c stays as it was, as it does when it cannot be given up, and after an error that changes nothing. Otherwise c is of no use any
// more, whatever comes of MPA. There is but this connection: the first of the dialects that Connect would try is the only one.
func (q *QueuePair) ConnectStream(ctx context.Context, c net.Conn, conn ConnParam) error {
	if err := q.StartConnectStream(ctx, c, conn); err != nil {
		return err
	}
	return q.end.inService(ctx, c.RemoteAddr().String())
}

// StartConnectStream is ConnectStream without the wait for the Responder: State becomes RTS or Closed. It blocks until
// what was written to c is in segments.
func (q *QueuePair) StartConnectStream(ctx context.Context, c net.Conn, conn ConnParam) error {
	if err := cmp.Or(conn.checkConnect(), q.end.adapter.carries(c)); err != nil {
		return err
	}
	if err := q.end.beginConnecting(conn); err != nil {
		return connectClosed(c.RemoteAddr().String(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.end.stopDial.Store(&cancel)
	if q.end.unwanted.Load() {
		cancel()
	}
	tries := q.end.conn.dialects()[:1] // there is but this connection
	quiet := tries[0] != Culley02      // whose Responder need not wait for us
	_, err := q.end.adapter.enterMPA(ctx, c, quiet, func(l *connection) error {
		l.initiate(&q.end, tries)
		return q.end.join(l)
	})
	if err == nil {
		return nil
	}
	if q.end.unwanted.Load() {
		err = ErrClosed
	}
	q.end.conclude(err)
	return connectError(c.RemoteAddr().String(), err)
}

// AcceptStream waits as MPA Responder for the Initiator's Request on a connection that was used in streaming mode until now:
// 10 s at most, or until ctx ends, and then the connection is reset; when ctx ends before MPA has taken the connection over, it
// stays a stream. The request is to be answered as a Listener's.
//
// last, if not empty, is the last streaming message, which tells the Initiator to begin: it is sent once MPA waits for the
// Request, so that octets which are unread then are a mistake, ErrUnread, and leave conn as it was (RFC 5044 section 7.1.5). A
// ULP that has written that message itself gives none; octets that are unread are taken for the Request then.
//
// conn is what ConnectStream takes.
func (a *Adapter) AcceptStream(ctx context.Context, conn net.Conn, last []byte) (*ConnRequest, error) {
	return a.AcceptStreamWith(ctx, conn, last, ListenOptions{})
}

// AcceptStreamWith is AcceptStream with a say in which dialects are served. Backlog and OnFailure do not count.
func (a *Adapter) AcceptStreamWith(ctx context.Context, conn net.Conn, last []byte, opt ListenOptions) (*ConnRequest, error) {
	if err := a.carries(conn); err != nil {
		return nil, err // of what there perhaps is no address
	}
	l, err := a.respondWith(ctx, conn, last, opt)
	if err != nil {
		return nil, acceptError(conn, err)
	}
	r, err := l.nextRequest(ctx)
	if err != nil {
		return nil, acceptError(conn, err)
	}
	return r, nil
}

func acceptError(conn net.Conn, err error) error {
	return fmt.Errorf("rnic: accept on the connection with %v: %w", conn.RemoteAddr(), err)
}

// respond enters Responder mode. The Request will come through a Listener of the connection's own.
func (a *Adapter) respond(ctx context.Context, conn net.Conn, last []byte) (*connection, error) {
	return a.respondWith(ctx, conn, last, ListenOptions{})
}

func (a *Adapter) respondWith(ctx context.Context, conn net.Conn, last []byte, opt ListenOptions) (*connection, error) {
	if err := a.carries(conn); err != nil {
		return nil, err
	}
	last = append([]byte(nil), last...)
	own := &Listener{adapter: a, requests: make(chan *ConnRequest, 1)}
	if err := own.serve(opt); err != nil {
		return nil, err
	}
	return a.enterMPA(ctx, conn, len(last) > 0, func(l *connection) error {
		l.respondFor(own)
		l.out = last
		return nil
	})
}

// nextRequest waits for the Request, or why it will not come. A simulation turns until there is one of the two.
func (l *connection) nextRequest(ctx context.Context) (*ConnRequest, error) {
	for {
		for l.adapter.cfg.Manual != nil && ctx.Err() == nil && l.undecided() {
			l.adapter.turn()
		}
		select {
		case r := <-l.listener.requests:
			if l.claim.CompareAndSwap(unclaimed, claimedByULP) {
				return r, nil
			} // else its connection is over
		case <-l.gone:
			return nil, l.overError()
		case <-ctx.Done():
			_ = orderUntil(context.WithoutCancel(ctx), l.adapter, l.transport.Submit, func() { l.Fail(ErrClosed) }) // a stopped Poller has ended it
			return nil, ctx.Err()
		}
	}
}

// undecided: neither is the Request there, nor is the connection over.
func (l *connection) undecided() bool {
	select {
	case <-l.gone:
		return false
	default:
		return len(l.listener.requests) == 0
	}
}

// carries says whether the Adapter can run MPA over conn.
func (a *Adapter) carries(conn net.Conn) error {
	switch c := conn.(type) {
	case *net.TCPConn, *transport.BufferedConn:
		return nil
	case *stream.Conn:
		if a.pollerOf(c.Poller()) != nil {
			return nil
		}
		return fmt.Errorf("rnic: the connection's poller %q is none of the adapter's: name it in Config.Pollers", c.Poller().Name())
	}
	return fmt.Errorf("rnic: MPA starts on a *stream.Conn or a *net.TCPConn itself, not on a %T", conn)
}

func (a *Adapter) pollerOf(p *stack.Poller) *pollerState {
	for _, ln := range a.pollers {
		if ln.poller == p {
			return ln
		}
	}
	return nil
}

// enterMPA puts a connection above conn. quiet: the peer has nothing to say before we do. role says what the connection is for, or that
// it is not wanted any more.
func (a *Adapter) enterMPA(ctx context.Context, conn net.Conn, quiet bool, role func(*connection) error) (*connection, error) {
	switch c := conn.(type) {
	case *stream.Conn:
		return a.fromStream(ctx, c, quiet, role)
	case *transport.BufferedConn:
		front := c.TakeRest()
		l, err := a.fromSocket(ctx, c.TCPConn, front, quiet, role)
		if err != nil {
			c.PutBack(front)
		}
		return l, err
	}
	return a.fromSocket(ctx, conn.(*net.TCPConn), nil, quiet, role)
}

func (a *Adapter) fromStream(ctx context.Context, c *stream.Conn, quiet bool, role func(*connection) error) (*connection, error) {
	l, u := newPollerConnection(a, a.pollerOf(c.Poller()))
	var refused error
	d, err := c.StartDetach(func(h stream.Handover) stack.Upper {
		if refused = l.mayTake(h, quiet, role); refused != nil {
			return nil
		}
		u.TakeOver(h)
		return u
	})
	if err != nil {
		return nil, err
	}
	_ = a.wait(ctx, d.Done()) // Wait says what came of it
	if err := d.Wait(ctx); err != nil {
		if refused != nil {
			return nil, refused
		}
		return nil, err
	}
	return l, nil
}

// mayTake says why a connection is to stay a stream. Poller's goroutine.
func (l *connection) mayTake(h stream.Handover, quiet bool, role func(*connection) error) error {
	if quiet && (h.Edge > h.Read || h.Early > 0) {
		return ErrUnread
	}
	if !l.adapter.addConnection(l) {
		return ErrClosed
	}
	err := role(l)
	if err != nil {
		l.adapter.dropConnection(l)
		close(l.gone) // nobody will drive it
	}
	return err
}

// fromSocket takes the connection away from nc, whose deadlines and whose Close shall not reach MPA. front was read from it
// already.
func (a *Adapter) fromSocket(ctx context.Context, nc *net.TCPConn, front []byte, quiet bool, role func(*connection) error) (*connection, error) {
	unread, err := transport.UnreadOctets(nc)
	switch {
	case err != nil:
		return nil, err
	case quiet && unread+len(front) > 0:
		return nil, ErrUnread
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	at, err := a.places.Take()
	if err != nil {
		return nil, err
	}
	l, s, err := a.adoptSocket(nc, at)
	if err != nil {
		at.Leave()
		return nil, err
	}
	s.Front = front
	_ = nc.Close()        // ends the blocked calls of who still uses it, and nothing else: the descriptor has a twin
	_ = s.Submit(func() { // the QueuePair knows the connection from here on: Abort may come
		if err := role(l); err != nil {
			l.Fail(err) // run then finds a connection that is over, and tells the QueuePair
		}
	})
	s.Run()
	return l, nil
}

// adoptSocket makes a connection over a second descriptor of nc's connection.
func (a *Adapter) adoptSocket(nc *net.TCPConn, at *transport.Place) (*connection, *transport.KernelConn, error) {
	f, err := nc.File()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // FileConn has one of its own
	own, err := net.FileConn(f)
	if err != nil {
		return nil, nil, err
	}
	l, s, err := newKernelConnection(a, own.(*net.TCPConn), at)
	if err != nil {
		_ = own.Close() // the error at hand says more
	}
	return l, s, err
}
