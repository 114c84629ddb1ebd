package rnic

import (
	"context"
	"net"

	"github.com/rnicd/rnicd/rnic/internal/transport"
)

func (e *endpoint) dialKernel(ctx context.Context, addr string) error {
	return e.dialSocket(ctx, addr, e.conn.dialects())
}

// dialSocket begins a connection in the first of the dialects; the others are for when it ends early.
func (e *endpoint) dialSocket(ctx context.Context, addr string, tries []Dialect) error {
	a := e.adapter
	at, err := a.places.Take()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stopDial.Store(&cancel)
	if e.unwanted.Load() {
		cancel()
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		at.Leave()
		if e.unwanted.Load() {
			return ErrClosed
		}
		return transport.SocketError(err)
	}
	l, s, err := newKernelConnection(a, nc.(*net.TCPConn), at)
	if err != nil {
		at.Leave()
		_ = nc.Close() // the error at hand says more
		return err
	}
	_ = s.Submit(func() { // Abort and Adapter.Close know the connection
		l.initiate(e, tries)
		l.again = func() { go e.redialKernel(addr, tries[1:]) }
		if err := e.join(l); err != nil {
			l.Fail(err) // run then finds a connection that is over, and tells the QueuePair
		}
	})
	s.Run()
	return nil
}
