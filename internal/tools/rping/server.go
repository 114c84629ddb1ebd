package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// ServerConfig of a Server.
type ServerConfig struct {
	Adapter     *rnic.Adapter
	SizeMax     int            // the longest ping, SizeMax at most, which is the default
	ClientsMax  int            // at a time (default 64)
	IdleTimeout time.Duration  // ends a connection on which nothing comes for so long (default 30 s)
	Conn        rnic.ConnParam // NoMarkers, NoCRC; the rest is the Server's
	// OnPing, Done and Refused, if set, are told of each ping, of each client that is gone, and of
	// those that were rejected. Called from several goroutines.
	OnPing  func(netip.AddrPort, Ping)
	Done    func(Served)
	Refused func(remote netip.AddrPort, why string)
}

// Served is a client that is gone. Err is nil when it left in order, between two pings.
type Served struct {
	Remote  netip.AddrPort
	Startup rnic.Startup
	Pings   int
	Err     error
}

// Server answers pings of any number of clients.
type Server struct {
	cfg    ServerConfig
	places peer.Places
}

// NewServer makes a Server; Serve runs it.
func NewServer(cfg ServerConfig) *Server {
	if cfg.SizeMax <= 0 || cfg.SizeMax > SizeMax {
		cfg.SizeMax = SizeMax
	}
	if cfg.ClientsMax <= 0 {
		cfg.ClientsMax = 64
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	return &Server{cfg: cfg, places: peer.NewPlaces(cfg.ClientsMax)}
}

// Serve accepts from l until ctx ends, then waits for the clients under way to be cut off. Its
// error is the Listener's.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, s.Handle)
}

// Handle serves one client to its end.
func (s *Server) Handle(ctx context.Context, req *rnic.ConnRequest) {
	if n := len(req.PrivateData()); n > 0 {
		peer.Refuse(ctx, req, fmt.Sprintf("%d octets of private data, a client of rping has none; this "+
			"is `rnicd rping server`", n), s.cfg.Refused)
		return
	}
	if err := s.places.Take(ctx); err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	defer s.places.Leave()
	e, err := newEnd(s.cfg.Adapter)
	if err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	buf, err := e.register(s.cfg.SizeMax, rnic.LocalWrite)
	if err != nil {
		e.release()
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	res := Served{Remote: req.Remote()}
	refused, err := peer.Accept(ctx, req, e.qp, connParam(s.cfg.Conn), s.cfg.Refused)
	if res.Err = err; err == nil {
		res.Err = s.run(ctx, e, buf, &res)
	}
	e.release()
	if refused {
		return
	}
	if s.cfg.Done != nil {
		s.cfg.Done(res)
	}
}

// run answers pings until the client leaves.
func (s *Server) run(ctx context.Context, e *end, buf *rnic.MemoryRegion, res *Served) error {
	res.Startup = e.qp.Startup()
	for ; ; res.Pings++ {
		begin := time.Now()
		from, err := s.hear(ctx, e)
		if errors.Is(err, errClosed) {
			return nil
		}
		if err == nil {
			err = s.pong(ctx, e, buf, from)
		}
		if errors.Is(err, errClosed) {
			err = ErrVanished
		}
		if err != nil {
			return err
		}
		if s.cfg.OnPing != nil {
			s.cfg.OnPing(res.Remote, Ping{Number: res.Pings, Data: buf.Bytes()[:from.size],
				Took: time.Since(begin)})
		}
	}
}

// hear waits for a message about octets, as many as there is room for.
func (s *Server) hear(ctx context.Context, e *end) (place, error) {
	silent := fmt.Errorf("rping: nothing came from the client for %v", s.cfg.IdleTimeout)
	idle, cancel := awake.Timeout(ctx, s.cfg.IdleTimeout, silent)
	defer cancel()
	p, err := e.receive(idle)
	switch {
	case err != nil && ctx.Err() == nil && idle.Err() != nil:
		err = silent
	case err == nil && (p.size == 0 || p.size > uint32(s.cfg.SizeMax)):
		err = fmt.Errorf("rping: a ping of %d octets, 1 to %d are served", p.size, s.cfg.SizeMax)
	}
	return p, err
}

// pong reads the data, says so, hears where it goes, writes it, and says so.
func (s *Server) pong(ctx context.Context, e *end, buf *rnic.MemoryRegion, from place) error {
	long := fmt.Errorf("rping: a ping took longer than %v", s.cfg.IdleTimeout)
	limited, cancel := awake.Timeout(ctx, s.cfg.IdleTimeout, long)
	defer cancel()
	err := s.exchange(limited, e, buf, from)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return long
	}
	return err
}

func (s *Server) exchange(ctx context.Context, e *end, buf *rnic.MemoryRegion, from place) error {
	local := buf.Slice(0, int(from.size))
	err := e.do(ctx, rnic.WorkRequest{Op: rnic.OpRead, Local: local, RemoteSTag: from.stag,
		RemoteOffset: from.to})
	if err != nil {
		return err
	}
	if err := e.send(ctx, place{}); err != nil {
		return err
	}
	to, err := s.hear(ctx, e)
	if err != nil {
		return err
	}
	if to.size < from.size {
		return fmt.Errorf("rping: %d octets to write back, the client has room for %d",
			from.size, to.size)
	}
	err = e.do(ctx, rnic.WorkRequest{Op: rnic.OpWrite, Local: local, RemoteSTag: to.stag,
		RemoteOffset: to.to})
	if err != nil {
		return err
	}
	return e.send(ctx, place{})
}
