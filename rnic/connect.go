package rnic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// abortTimeout bounds how long Connect waits, when its context has ended, for the connection's end.
const abortTimeout = time.Second

// Connect brings an idle QueuePair to a Responder at host:port as MPA Initiator, and returns when it is in service. The private
// data of the peer's Reply is PeerPrivateData.
//
// Some errors change nothing, and the QueuePair may be connected again: ErrState when it is not idle, what cannot be in conn, and
// *mem.TableFullError, for a connection takes one of Config.RegionsMax entries until it has ended. After any other the QueuePair is
// Closed and cannot be used again. It is a *ConnectError around the reason:
//   - ctx.Err(), and stack.ErrTentative too when that ended the wait for our address, which was still being checked;
//     ErrClosed when this end closed or aborted meanwhile, or the Adapter is closed;
//   - of TCP, over either transport: stack.ErrRefused, ErrReset, ErrTimeout, ErrNoRoute, ErrNetUnreachable, ErrConnMax, ErrStopped,
//     ErrPortUsed (no local port is left), and what the resolver says;
//   - of MPA: *RejectedError when the peer's ULP says no, *RevisionError, ErrStartupTimeout, or an *mpa.Error (RFC 5044 section 8).
func (q *QueuePair) Connect(ctx context.Context, addr string, conn ConnParam) error {
	if err := q.StartConnect(ctx, addr, conn); err != nil {
		return err
	}
	return q.end.inService(ctx, addr)
}

// inService waits for the end of start-up. What has come of it goes before ctx's end: it may be a connection that is given back.
func (e *endpoint) inService(ctx context.Context, addr string) error {
	var err error
	select {
	case err = <-e.connected:
	default:
		select {
		case err = <-e.connected:
		case <-ctx.Done():
			return connectError(addr, e.giveUp(ctx))
		}
	}
	if err != nil {
		<-e.done
	}
	return connectError(addr, err)
}

// giveUp ends start-up because ctx has ended. It returns ctx's error, or the rejection that came first and has a connection to
// be closed.
func (e *endpoint) giveUp(ctx context.Context) error {
	e.abort()
	select {
	case <-e.done:
	case <-time.After(abortTimeout): // nobody turns the Poller
		return ctx.Err()
	}
	var no *RejectedError
	if errors.As(e.err, &no) && no.Conn != nil {
		return no
	}
	if errors.Is(e.err, stack.ErrTentative) {
		return fmt.Errorf("%w: %w", stack.ErrTentative, ctx.Err())
	}
	return ctx.Err()
}

// StartConnect is Connect without the wait: State becomes RTS or Closed. With a Poller it does not block, so that a
// simulation can turn the Poller itself.
func (q *QueuePair) StartConnect(ctx context.Context, addr string, conn ConnParam) error {
	if err := conn.checkConnect(); err != nil {
		return err
	}
	if err := q.end.beginConnecting(conn); err != nil {
		return connectClosed(addr, err)
	}
	var err error
	if q.end.adapter.isClosed() {
		err = ErrClosed // before a peer hears of it
	} else if len(q.end.adapter.pollers) == 0 {
		err = q.end.dialKernel(ctx, addr)
	} else {
		err = q.end.dialPoller(ctx, addr)
	}
	if err != nil {
		q.end.conclude(err)
		return connectError(addr, err)
	}
	return nil
}

func connectError(addr string, err error) error {
	if err == nil {
		return nil
	}
	return &ConnectError{Addr: addr, Err: err}
}

// connectClosed is beginConnecting's error: a *ConnectError where it means the QueuePair's end.
func connectClosed(addr string, err error) error {
	if errors.Is(err, ErrClosed) {
		return connectError(addr, err)
	}
	return err
}

// resolve looks a name up with the system's resolver; a literal address needs none.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return ap, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q is not host:port: %w", addr, err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(ips) == 0 {
		return netip.AddrPort{}, errors.New("no address found")
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}
