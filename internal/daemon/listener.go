package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stream"
)

// place is where a listener is: the number of a port, and a TCP port.
type place struct {
	port int
	tcp  uint16
}

// listener takes the connections of a place, for the Service that it leads to at the time. It
// outlives the Service where one of the same kind follows.
type listener struct {
	on *Port
	// what cannot be changed while it listens: two of the same kind can follow each other
	kind    string
	service atomic.Pointer[Service]
	stop    func()
	running sync.WaitGroup
}

// kindOf says what is decided when a place is opened.
func kindOf(c *config.Service) string {
	if c.Type == config.Stream {
		return "stream"
	}
	return fmt.Sprint("rdma ", c.Dialects)
}

// listen opens a place for a Service.
func (d *Daemon) listen(ctx context.Context, on *Port, s *Service) (*listener, error) {
	c := s.Config()
	l := &listener{on: on, kind: kindOf(&c)}
	l.service.Store(s)
	var err error
	if c.Type == config.Stream {
		err = l.listenStream(ctx, c.Listen)
	} else {
		err = l.listenRDMA(ctx, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("service %q on port %q: %w", c.Name, on.Name, err)
	}
	return l, nil
}

// close stops taking connections. Those that there are go on.
func (l *listener) close() {
	l.stop()
	l.running.Wait()
}

func (l *listener) addr(tcp uint16) string {
	return net.JoinHostPort(l.on.Host(), strconv.Itoa(int(tcp)))
}

func (l *listener) listenRDMA(ctx context.Context, c *config.Service) error {
	inner, err := l.on.Adapter.Listen(ctx, l.addr(c.Listen),
		rnic.ListenOptions{Dialects: c.Dialects, OnFailure: func(f rnic.ConnFailure) {
			if !f.Offered { // the service tells of the others
				l.service.Load().failed(f.Remote, f.Err)
			}
		}})
	if err != nil {
		return err
	}
	accepting, cancel := context.WithCancel(context.Background())
	l.stop = func() {
		cancel()
		inner.Close()
	}
	l.running.Go(func() {
		for {
			req, err := inner.Accept(accepting)
			if err != nil {
				return // closed, or its port is, which others tell of
			}
			go l.request(req)
		}
	})
	return nil
}

// request is one connection over RDMA.
func (l *listener) request(req *rnic.ConnRequest) {
	s, c, why := l.begin(req.Remote())
	if c == nil {
		peer.Refuse(s.ctx, req, why.text, func(remote netip.AddrPort, text string) {
			s.refusedFor(why.cause, remote, text)
		})
		return
	}
	defer s.end(c)
	s.server.request(s.ctx, l.on, req)
}

// begin takes a place at the Service that the listener leads to. Without a Connection it says why.
func (l *listener) begin(remote netip.AddrPort) (*Service, *Connection, refusal) {
	for {
		s := l.service.Load()
		c, why, current := s.await(l.on, remote)
		switch {
		case current:
			return s, c, why
		case l.service.Load() == s:
			return s, nil, refusal{&s.refusedBy.request, "the server is about to end" + peer.Later}
		}
	}
}

// Sizes of a stream that is to be fast over any path.
const (
	streamWindowMax = 4 << 20
	streamBuffer    = 4 << 20
)

func (l *listener) listenStream(ctx context.Context, tcp uint16) (err error) {
	var streams net.Listener
	if pollers := l.on.Pollers(); len(pollers) > 0 {
		streams, err = stream.Listen(pollers, tcp, stream.Options{ReceiveWindowMax: streamWindowMax,
			SendBuffer: streamBuffer})
	} else {
		var lc net.ListenConfig
		streams, err = lc.Listen(ctx, "tcp", l.addr(tcp))
	}
	if err != nil {
		return err
	}
	l.stop = func() { _ = streams.Close() }
	l.accept(streams)
	return nil
}

// accept takes connections of a net.Listener.
func (l *listener) accept(from net.Listener) {
	l.running.Go(func() {
		for {
			conn, err := from.Accept()
			if err != nil {
				return // closed, or its port is, which others tell of
			}
			go l.conn(conn)
		}
	})
}

// conn is one connection of a net.Listener.
func (l *listener) conn(conn net.Conn) {
	defer conn.Close()
	var remote netip.AddrPort
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		remote = plain(a.AddrPort())
	}
	s, c, why := l.begin(remote)
	if c == nil {
		s.refusedFor(why.cause, remote, why.text)
		return
	}
	defer s.end(c)
	s.server.conn(s.ctx, conn)
}
