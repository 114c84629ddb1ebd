package pair

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// ServerConfig of a Server.
type ServerConfig struct {
	Adapter *rnic.Adapter
	// SizeMax is the longest message served, at most SizeLimit, which is the default. A client
	// takes up to twice as much memory.
	SizeMax int
	// ClientsMax is how many are served at a time (default 8). The next one is refused.
	ClientsMax int
	// IdleTimeout ends a connection on which nothing moves for so long (default 30 s).
	IdleTimeout time.Duration
	Conn        rnic.ConnParam // NoMarkers, NoCRC; the rest is the Server's
	// Done, if set, is told of each test that was accepted, when it is over, and Refused of the
	// others. Called from several goroutines.
	Done    func(Served)
	Refused func(remote netip.AddrPort, why string)
}

// Served is a test that is over. Err is nil when the client said so itself.
type Served struct {
	Remote netip.AddrPort
	Test   perf.Test // Op, Latency, Size
	Took   time.Duration
	Err    error
}

// Server is the other end of tests.
type Server struct {
	cfg    ServerConfig
	places peer.Places
}

// NewServer makes a Server; Serve runs it.
func NewServer(cfg ServerConfig) *Server {
	if cfg.SizeMax <= 0 || cfg.SizeMax > SizeLimit {
		cfg.SizeMax = SizeLimit
	}
	if cfg.ClientsMax <= 0 {
		cfg.ClientsMax = 8
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	return &Server{cfg: cfg, places: peer.NewPlaces(cfg.ClientsMax)}
}

// Serve accepts from l until ctx ends, then waits for the tests under way to be aborted. Its error
// is the Listener's.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, s.Handle)
}

// Handle serves one connection request to its end.
func (s *Server) Handle(ctx context.Context, req *rnic.ConnRequest) {
	r, err := parseRequest(req.PrivateData())
	if err == nil {
		err = checkTest(&r.test, s.cfg.SizeMax)
	}
	if err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	if err := s.places.Take(ctx); err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	defer s.places.Leave()
	r.test.TxDepth = 1 // a credit, or a pong
	e, err := newEnd(s.cfg.Adapter, &r.test, true)
	if err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	begin := time.Now()
	e.peer(r.place)
	refused, err := peer.Accept(ctx, req, e.QP, connParam(s.cfg.Conn, marshalReply(e.place(&r.test))),
		s.cfg.Refused)
	if err == nil {
		err = s.run(ctx, e, &r)
	}
	e.Release()
	if s.cfg.Done != nil && !refused {
		s.cfg.Done(Served{Remote: req.Remote(), Test: r.test, Took: time.Since(begin), Err: err})
	}
}

// run serves until the client's last message, answers it and waits for the client to close.
func (s *Server) run(ctx context.Context, e end, r *request) error {
	silent := fmt.Errorf("perf: nothing came from the client for %v", s.cfg.IdleTimeout)
	ctx, stop := peer.Watch(ctx, s.cfg.IdleTimeout, silent,
		func(ctx context.Context) (perf.Moved, error) { return perf.MovedOver(ctx, e.QP) })
	defer stop()
	err := e.Serve(ctx, r.test)
	switch {
	case err == nil && !helps(&r.test):
		err = e.await(ctx)
	case err == nil && e.QP.State() == rnic.Closed:
		// a client that has sent its last message waits for ours
		err = perf.ErrEnded
	}
	if err == nil {
		_, err = e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: e.Local.Slice(e.SendAt, lastLen)})
	}
	if err == nil {
		select {
		case <-e.QP.Done():
			return e.QP.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return peer.Reason(e.QP, err)
}

// helps: perf.End.Serve has something to do, and so sees the client's last message.
func helps(t *perf.Test) bool { return t.Op == perf.Send || t.Op == perf.Write && t.Latency }

// await waits for the client's last message, the only one.
func (e end) await(ctx context.Context) error {
	c, err := peer.Next(ctx, e.RecvCQ)
	switch {
	case err != nil:
		return err
	case c.Status != rnic.Success:
		return peer.Over(ctx, e.QP, perf.ErrEnded)
	case !c.Solicited:
		return errors.New("perf: the client sent a message that belongs to no test")
	}
	return nil
}
