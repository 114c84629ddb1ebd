package rnic

import (
	"context"
	"errors"

	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// Connect brings an idle QueuePair to a Responder at host:port as MPA Initiator, and returns when
// it is in service. The private data of the peer's Reply is PeerPrivateData. Any application
// goroutine.
//
// Some errors change nothing, and the QueuePair may be connected again: ErrState when it is not
// idle, what cannot be in conn, and *mem.TableFullError, for a connection takes one of
// Config.RegionsMax entries until it has ended. After any other the QueuePair is Closed and cannot
// be used again. It is a *ConnectError around the reason:
//   - ctx.Err(), and stack.ErrTentative too when that ended the wait for our address, which was
//     still being checked; ErrClosed when this end closed or aborted meanwhile, or the Adapter is
//     closed;
//   - of TCP, over either transport: stack.ErrRefused, ErrReset, ErrTimeout, ErrNoRoute,
//     ErrNetUnreachable, ErrConnMax, ErrStopped, ErrPortUsed (no local port is left), and what
//     the resolver says;
//   - of MPA: *RejectedError when the peer's ULP says no, *RevisionError, ErrStartupTimeout, or
//     an *MPAError.
func (q *QueuePair) Connect(ctx context.Context, addr string, conn ConnParam) error {
	if err := q.StartConnect(ctx, addr, conn); err != nil {
		return err
	}
	return connectError(addr, q.inService(ctx))
}

// StartConnect is Connect without the wait for the peer: State becomes RTS or Closed. Over kernel
// sockets it blocks until TCP's handshake is over. Any application goroutine.
func (q *QueuePair) StartConnect(ctx context.Context, addr string, conn ConnParam) error {
	if err := conn.checkConnect(); err != nil {
		return err
	}
	if conn.Binding != nil && conn.Binding.adapter != q.adapter {
		return errors.New("rnic: ConnParam.Binding belongs to another adapter")
	}
	if err := q.end.BeginConnecting(conn.param()); err != nil {
		return connectClosed(addr, err)
	}
	if err := q.end.Dial(ctx, addr); err != nil {
		q.end.Finish(err)
		return connectError(addr, err)
	}
	return nil
}

// inService waits for the end of start-up.
func (q *QueuePair) inService(ctx context.Context) error {
	return publicError(q.end.InService(ctx))
}

func connectError(addr string, err error) error {
	if err == nil {
		return nil
	}
	return &ConnectError{Addr: addr, Err: err}
}

// connectClosed is BeginConnecting's error: a *ConnectError where it means the QueuePair's end.
func connectClosed(addr string, err error) error {
	if errors.Is(err, ErrClosed) {
		return connectError(addr, err)
	}
	return err
}

// SendFirst lets a Responder send what was posted although no FPDU of the Initiator's has come yet,
// SendFirstPause after its Reply at the soonest, and when our TCP knows that to be acknowledged. It
// is for ULPs in which the Responder sends first without RFC 6581's peer-to-peer start-up, such as
// ucmatose: by default both ends of these would wait for ever.
//
// Any application goroutine, at any time: before Accept, too, and it holds as soon as the QueuePair
// is in service. Quirks.SendFirst, at Accept, is the same. The error is ErrState when the
// QueuePair is Closed. It changes nothing at an Initiator, or where an RTR message is still awaited
// (the next FPDU will come by itself).
func (q *QueuePair) SendFirst() error { return q.end.LetSend(connect.SendsFirst) }

// PeerReady is SendFirst without the pause: the Initiator is known to be in full operation, for it
// has said so by other means, such as another connection. Any application goroutine.
func (q *QueuePair) PeerReady() error { return q.end.LetSend(connect.PeerIsReady) }
