package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
	"github.com/rnicd/rnicd/internal/tools/iperf3"
	"github.com/rnicd/rnicd/stream"
)

// handed is a net.Listener of connections that somebody else has accepted.
type handed struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newHanded() *handed { return &handed{conns: make(chan net.Conn), over: make(chan struct{})} }

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.over) })
	return nil
}

func (h *handed) Addr() net.Addr { return &net.TCPAddr{} }

// give hands a connection over, and returns when it is closed, or ctx ends.
func (h *handed) give(ctx context.Context, c net.Conn, closed <-chan struct{}) {
	select {
	case h.conns <- c:
	case <-h.over:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// streamServer speaks iperf3's protocol, or none.
func streamServer(s *Service, c *config.Service) server {
	if c.Mode == "iperf3" {
		return iperfServer(s, c)
	}
	return server{conn: func(ctx context.Context, conn net.Conn) {
		p := &bytestream.Session{
			Conn: conn, Length: int(c.Length), Idle: time.Duration(c.IdleTimeout), Bytes: uint64(c.Bytes),
			Time: time.Duration(c.Time),
		}
		err := p.Run(ctx, c.Mode)
		s.over(remoteOf(conn), err, "mode", c.Mode, "received", p.Received, "sent", p.Sent,
			"took", p.Took)
	}}
}

func remoteOf(c net.Conn) netip.AddrPort {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return plain(a.AddrPort())
	}
	return netip.AddrPort{}
}

// closing is a connection that says when it was closed.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// either is iperf3's transport over whatever a connection is of.
type either struct{}

func (either) of(c net.Conn) (net.Conn, iperf3.Transport) {
	if w, ok := c.(*closing); ok {
		c = w.Conn
	}
	if _, ok := c.(*stream.Conn); ok {
		return c, bytestream.Ours{}
	}
	return c, bytestream.Kernel{}
}

// Prepare implements iperf3.Transport.
func (e either) Prepare(c net.Conn, p iperf3.Params) error {
	inner, t := e.of(c)
	return t.Prepare(inner, p)
}

// Info implements iperf3.Transport.
func (e either) Info(c net.Conn) iperf3.Info {
	inner, t := e.of(c)
	return t.Info(inner)
}

// iperfStreams is how many connections one client of iperf3 may have, beside its control
// connection: iperf3's own limit of -P.
const iperfStreams = 128

func iperfServer(s *Service, c *config.Service) server {
	in := newHanded()
	srv := iperf3.NewServer(iperf3.ServerConfig{
		Transport: either{}, Idle: time.Duration(c.IdleTimeout),
		Done: func(r *iperf3.Report) {
			for _, out := range r.Directions() {
				sum := r.Sum(out)
				s.log.Info("served", "remote", fmt.Sprint(r.Remote), "sent_by_us", out, "octets",
					sum.ReceivedOctets, "seconds", sum.ReceivedSeconds)
			}
		},
		Failed: func(remote net.Addr, cause error) {
			if a, ok := remote.(*net.TCPAddr); ok {
				s.failed(plain(a.AddrPort()), cause)
			}
		},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(s.ctx, in) // the end of ctx, which is no error
	}()
	return server{
		perPeer: 1 + iperfStreams,
		conn: func(ctx context.Context, conn net.Conn) {
			c := &closing{Conn: conn, closed: make(chan struct{})}
			in.give(ctx, c, c.closed)
		},
		release: func() error {
			<-ended
			return nil
		},
	}
}
