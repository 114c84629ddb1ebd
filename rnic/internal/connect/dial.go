package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// Dial begins a connection to host:port; what comes of it is told by connected and done. Over
// kernel sockets it blocks until the peer has answered.
func (e *Endpoint) Dial(ctx context.Context, addr string) error {
	switch {
	case e.host.IsClosed():
		return ErrClosed // before a peer hears of it
	case len(e.host.Pollers) == 0:
		return e.dialKernel(ctx, addr)
	}
	return e.dialPoller(ctx, addr)
}

func (e *Endpoint) dialKernel(ctx context.Context, addr string) error {
	return e.dialSocket(ctx, addr, e.param.Tries)
}

// dialSocket begins a connection in the first of the dialects; the others are for when it ends
// early.
func (e *Endpoint) dialSocket(ctx context.Context, addr string, tries []mpa.Dialect) error {
	h := e.host
	at, err := h.Places.Take()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stopDial.Store(&cancel)
	if e.Unwanted.Load() {
		cancel()
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		at.Leave()
		if e.Unwanted.Load() {
			return ErrClosed
		}
		return transport.SocketError(err)
	}
	l, s, err := newKernelConnection(h, nc.(*net.TCPConn), at)
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
