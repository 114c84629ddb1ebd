package engine

import (
	"context"
	"net"
	"net/netip"

	"github.com/rnicd/rnicd/rnic"
)

// Our own stack does not connect to its own address: it has no link to send that on. Two queue
// pairs of one process, or one with itself, are connected over the kernel's loopback then, by a
// connection whose ends nobody else has had.

// within says whether the peer is this process, over our own stack.
func (w *way) within() bool {
	return w.q.engine.ownTCP && w.own.gid == w.peer.gid && w.own.port() == w.peer.port()
}

// startWithin is StartConnect, and has the Request taken.
func (w *way) startWithin(ctx context.Context, l *life, param rnic.ConnParam) error {
	e := w.q.engine
	mine, theirs, err := e.loop(ctx)
	if err != nil {
		return err
	}
	go func() {
		opt := rnic.ListenOptions{Dialects: []rnic.Dialect{rnic.RFC6581}}
		r, err := e.adapter.AcceptStreamWith(ctx, theirs, nil, opt)
		if err != nil {
			_ = theirs.Close() // the other end will say why
			return
		}
		e.asked(e.slot, r, true)
	}()
	if err := l.rnic.StartConnectStream(ctx, mine, param); err != nil {
		_ = mine.Close()
		return err
	}
	return nil
}

// loopback is both ends of a connection over the kernel's loopback.
func loopback(ctx context.Context) (mine, theirs net.Conn, err error) {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		if theirs, err = l.Accept(); err != nil {
			_ = c.Close()
			return nil, nil, err
		}
		if theirs.RemoteAddr().String() == c.LocalAddr().String() {
			return c, theirs, nil
		}
		_ = theirs.Close() // another program's
	}
}
