package connect

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Responder is what connections that come in serve, and whom they tell.
type Responder struct {
	Dialects   mpa.Dialects
	PrivateMax int // the longest private data taken with a Request of Rev 0
	// Offer queues a connection whose Request, Kind 0 for none, waits for the ULP's decision. It
	// never blocks.
	Offer func(l *Connection, f mpa.Frame) error
	// Report, if set, tells why a connection has ended: after full operation, or before; the ULP
	// has claimed it, or will not hear of it.
	Report func(l *Connection, started, offered bool, err error)
}

// Incoming is the Upper of a connection to one of the Pollers; nil when there are to be no more.
func (h *Host) Incoming(ln *PollerState, r *Responder) stack.Upper {
	l, u := newPollerConnection(h, ln)
	l.respondFor(r)
	if !h.addConnection(l) {
		return nil
	}
	return u
}

// IncomingSocket takes a connection to one of the kernel's sockets. With an error it is closed
// already.
func (h *Host) IncomingSocket(nc *net.TCPConn, r *Responder) error {
	at, gaveWay, err := h.Places.TakeFor(transport.AddrPort(nc.RemoteAddr()).Addr())
	if gaveWay != nil {
		gaveWay.GiveWay()
	}
	if err == nil {
		var l *Connection
		var s *transport.KernelConn
		if l, s, err = newKernelConnection(h, nc, at); err == nil {
			_ = s.Submit(func() { l.respondFor(r) }) // host.close knows the connection
			s.Run()
			return nil
		}
		at.Leave()
	}
	_ = nc.SetLinger(0)
	_ = nc.Close() // refused: there is no more to say to this peer
	return err
}

// respondFor makes l a Responder's connection.
func (l *Connection) respondFor(r *Responder) { l.Responder, l.privateMax = r, r.PrivateMax }

// Ask runs fn on the driving goroutine and waits for its answer. When it returns without one, fn
// will not run any more.
func (l *Connection) Ask(ctx context.Context, fn func() error) error {
	res := make(chan error, 1)
	var taken atomic.Bool // by the first of two: the driving goroutine or the one that gave up
	err := OrderUntil(ctx, l.Host, l.Transport.Submit, func() {
		if taken.CompareAndSwap(false, true) {
			res <- fn()
		}
	})
	if err != nil {
		return err
	}
	l.Host.Turn()
	select {
	case err = <-res:
		return err
	case <-l.Gone:
		err = l.OverError()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !taken.CompareAndSwap(false, true) {
		return <-res
	}
	return err
}
