package rnic

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

func (l *Listener) listenKernel(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	nl, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	tl := nl.(*net.TCPListener)
	l.addr = transport.AddrPort(tl.Addr())
	l.stop = func(context.Context) { _ = tl.Close() } // ends the accept loop
	go l.acceptLoop(tl)
	return nil
}

// acceptLoop accepts until the listener is closed. When the system has no more descriptors, or the
// like, it waits a little longer each time instead of asking again at once.
func (l *Listener) acceptLoop(tl *net.TCPListener) {
	const firstPause, longestPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		nc, err := tl.AcceptTCP()
		switch {
		case err == nil:
			pause = firstPause
			l.acceptKernel(nc)
			continue
		case errors.Is(err, net.ErrClosed):
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

func (l *Listener) acceptKernel(nc *net.TCPConn) {
	if err := l.adapter.host.IncomingSocket(nc, &l.role); err != nil {
		l.fail(ConnFailure{Remote: transport.AddrPort(nc.RemoteAddr()), Err: err})
	}
}
