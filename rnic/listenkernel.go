package rnic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// listenKernel listens at addr, at 0.0.0.0 for IPv4 alone: package net's "tcp" would take both.
func (l *Listener) listenKernel(ctx context.Context, addr string, v6Only bool,
	bound *connect.Binding) error {
	network := "tcp"
	if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Addr().Is4() {
		network = "tcp4"
	} else if v6Only {
		network = "tcp6"
	}
	if bound != nil {
		if !bound.Alone() {
			return stack.ErrPortUsed
		}
		if err := bound.Share(); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	nl, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return err
	}
	if bound != nil {
		bound.Used()
	}
	tl := nl.(*net.TCPListener)
	l.addr = transport.AddrPort(tl.Addr())
	raw, err := tl.SyscallConn()
	if err != nil {
		_ = tl.Close() // it is not used
		return err
	}
	transport.KeepDescriptor(raw)
	l.stop = func(context.Context) { // ends the accept loop
		l.stopped.Store(true)
		transport.ForgetDescriptor(raw)
		transport.Disconnect(raw)
		_ = tl.Close() // nobody is told any more
	}
	go l.acceptLoop(tl)
	return nil
}

// acceptLoop accepts until the listener is closed. When the system has no more descriptors, or the
// like, it waits a little longer each time instead of asking again at once.
func (l *Listener) acceptLoop(tl *net.TCPListener) {
	const firstPause, longestPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	var order connect.SocketOrder
	for {
		nc, err := tl.AcceptTCP()
		switch {
		case err == nil:
			pause = firstPause
			l.acceptKernel(nc, &order)
			continue
		case l.stopped.Load(), errors.Is(err, net.ErrClosed):
			return
		}
		l.adapter.host.Refuse(connect.RefusedSystem)
		l.fail(ConnFailure{Err: err})
		select {
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		case <-l.done:
			return
		}
	}
}

func (l *Listener) acceptKernel(nc *net.TCPConn, order *connect.SocketOrder) {
	if err := l.adapter.host.IncomingSocket(nc, &l.role, order); err != nil {
		l.fail(ConnFailure{Remote: transport.AddrPort(nc.RemoteAddr()), Err: err})
	}
}
