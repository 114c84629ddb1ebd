package rnic

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// ConnectStream brings an idle QueuePair into service as MPA Initiator on a connection that was
// used in streaming mode until now, and returns when the Responder has accepted, as Connect does. c
// is a *stream.Conn of one of the Adapter's Pollers, a *net.TCPConn, or what a rejection gave back.
// Everything the Responder wrote must have been read: else the error is ErrUnread and c stays as it
// was, as it does when it cannot be given up, and after an error that changes nothing. Otherwise c
// must not be used after that, even if start-up fails. Only the first of the dialects that Connect
// would try is tried, as there is only this connection. Any application goroutine.
func (q *QueuePair) ConnectStream(ctx context.Context, c net.Conn, conn ConnParam) error {
	if err := q.StartConnectStream(ctx, c, conn); err != nil {
		return err
	}
	return connectError(c.RemoteAddr().String(), q.inService(ctx))
}

// StartConnectStream is ConnectStream without the wait for the Responder: State becomes RTS or
// Closed. It blocks until what was written to c is in segments. Any application goroutine.
func (q *QueuePair) StartConnectStream(ctx context.Context, c net.Conn, conn ConnParam) error {
	if err := cmp.Or(conn.checkConnect(), q.adapter.host.Carries(c)); err != nil {
		return err
	}
	if err := q.end.BeginConnecting(conn.param()); err != nil {
		return connectClosed(c.RemoteAddr().String(), err)
	}
	if err := q.end.ConnectStream(ctx, c); err != nil {
		q.end.Finish(err)
		return connectError(c.RemoteAddr().String(), err)
	}
	return nil
}

// AcceptStream waits as MPA Responder for the Initiator's Request on a connection that was used in
// streaming mode until now: 10 s at most, or until ctx ends, and then the connection is reset; when
// ctx ends before MPA has taken the connection over, it stays a stream. The request is to be
// answered as a Listener's. Any application goroutine.
//
// last, if not empty, is the last streaming message, after which the Initiator begins. It is sent
// when MPA waits for the Request; if there are unread octets then, the error is ErrUnread, and conn
// is unchanged (RFC 5044 section 7.1.5). If the ULP has written that message itself, last is empty,
// and unread octets belong to the Request.
//
// conn is what ConnectStream takes.
func (a *Adapter) AcceptStream(ctx context.Context, conn net.Conn,
	last []byte) (*ConnRequest, error) {
	return a.AcceptStreamWith(ctx, conn, last, ListenOptions{})
}

// AcceptStreamWith is AcceptStream with the dialects of opt; Backlog, Allow and OnFailure are
// ignored. Any application goroutine.
func (a *Adapter) AcceptStreamWith(ctx context.Context, conn net.Conn, last []byte,
	opt ListenOptions) (*ConnRequest, error) {
	if err := a.host.Carries(conn); err != nil {
		return nil, err // of what there perhaps is no address
	}
	l, err := a.respond(ctx, conn, last, opt)
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

// awaited is a connection whose Request is awaited.
type awaited struct {
	*connect.Connection
	requests chan *ConnRequest
}

// respond enters Responder mode. The Request will come through a Listener of the connection's own.
func (a *Adapter) respond(ctx context.Context, conn net.Conn, last []byte,
	opt ListenOptions) (awaited, error) {
	if err := a.host.Carries(conn); err != nil {
		return awaited{}, err
	}
	last = append([]byte(nil), last...)
	own := &Listener{adapter: a, requests: make(chan *ConnRequest, 1)}
	if err := own.serve(opt); err != nil {
		return awaited{}, err
	}
	l, err := a.host.RespondOn(ctx, conn, last, &own.role)
	return awaited{l, own.requests}, err
}

// nextRequest waits for the Request, or why it will not come. A simulation turns until there is one
// of the two.
func (l awaited) nextRequest(ctx context.Context) (*ConnRequest, error) {
	for {
		for l.Host.Manual != nil && ctx.Err() == nil && !l.Gone.Given() && len(l.requests) == 0 {
			l.Host.Turn()
		}
		select {
		case r := <-l.requests:
			if l.Claimed() {
				return r, nil
			} // else its connection is over
		case <-l.Gone.C():
			return nil, l.OverError()
		case <-ctx.Done():
			l.DiscardSoon(ctx)
			return nil, ctx.Err()
		}
	}
}

// RejectStream answers the Request as Reject does and returns the connection in streaming mode, for
// the ULP to use or to close: the peer's ULP, if it keeps it too, reads on at the octet after the
// Reply. It blocks until the Reply is on its way. What a hasty peer has sent after its Request is
// the stream's; but the connection is reset when that came before AcceptStream took a stream over.
// culley-02 has no Reply, and fails. Any application goroutine.
func (r *ConnRequest) RejectStream(ctx context.Context, private []byte) (net.Conn, error) {
	if r.frame.Kind == 0 {
		return nil, ErrState
	}
	if err := privateDataError(private, r.Dialect()); err != nil {
		return nil, fmt.Errorf("rnic: reject %v: %w", r.remote, err)
	}
	private = slices.Clone(private)
	if err := r.connection.Ask(ctx, func() error {
		return r.connection.Reject(r.frame, private, true)
	}); err != nil {
		return nil, err
	}
	if err := r.adapter.host.Wait(ctx, r.connection.Gone.C()); err != nil {
		// a stopped Poller has ended it already
		_ = connect.OrderUntil(context.WithoutCancel(ctx), &r.adapter.host, r.connection.Transport.Submit,
			r.connection.Discard)
		return nil, err
	}
	if r.connection.Returned == nil {
		return nil, connect.OrClosed(r.connection.Err)
	}
	return r.connection.Returned, nil
}
