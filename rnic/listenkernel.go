package rnic

import (
	"context"
	"errors"
	"net"
	"time"

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

// acceptLoop accepts until the listener is closed. When the system has no more descriptors, or the like, it waits a
// little longer each time instead of asking again at once.
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
	peer := transport.AddrPort(nc.RemoteAddr())
	at, gaveWay, err := l.adapter.places.TakeFor(peer.Addr())
	if gaveWay != nil {
		gaveWay.GiveWay()
	}
	if err == nil {
		var over *connection
		var s *transport.KernelConn
		if over, s, err = newKernelConnection(l.adapter, nc, at); err == nil {
			_ = s.Submit(func() { over.respondFor(l) }) // Adapter.Close knows the connection
			s.Run()
			return
		}
		at.Leave()
	}
	_ = nc.SetLinger(0)
	_ = nc.Close() // refused: there is no more to say to this peer
	l.fail(ConnFailure{Remote: peer, Err: err})
}
