package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/rnic"
)

// DefaultPort is perftest's.
const DefaultPort = 18515

// ServerConfig of a Server.
type ServerConfig struct {
	Adapter *rnic.Adapter
	// Test is the one that all clients make: Op and Latency say which program they are, Size and Iterations what they were told
	// (-s and -n), RxDepth how many receive buffers a test of Sends has (-r).
	Test perf.Test
	// ClientsMax is how many are served at a time (default 8), each from an address of its own.
	ClientsMax int
	// IdleTimeout ends a test in which nothing moves for so long (default 30 s).
	IdleTimeout time.Duration
	QP          rnic.QPOptions // NoMarkers, NoCRC; the rest is the Server's
	// Done, if set, is told of each client when it has gone; called from several goroutines.
	Done func(Served)
}

// Served is a client that has gone. Err is nil when its test was made to its end.
type Served struct {
	Remote   netip.AddrPort
	Test     perf.Test
	Report   Report     // the client's figures; of ib_write_bw and ib_read_bw
	Counters rnic.Stats // of the connection that was measured
	Took     time.Duration
	Err      error
}

// Server is what perftest's clients connect to.
type Server struct {
	cfg   ServerConfig
	slots chan struct{}

	mu      sync.Mutex
	waiting map[netip.Addr]chan *rnic.ConnRequest // whose second connection is to come
}

// NewServer makes a Server, or says why there can be none for such a Test; Serve runs it.
func NewServer(cfg ServerConfig) (*Server, error) {
	cfg.Test.TxDepth = max(cfg.Test.TxDepth, 1) // a credit, or a pong
	if cfg.Test.Op != perf.Send {
		cfg.Test.RxDepth = 1
	}
	cfg.Test.RxDepth = min(cfg.Test.RxDepth, cfg.Test.Iterations) // as perftest
	cfg.Test.ServerFirst = cfg.Test.Op == perf.Write && cfg.Test.Latency
	if err := check(&cfg.Test); err != nil {
		return nil, err
	}
	if cfg.ClientsMax <= 0 {
		cfg.ClientsMax = 8
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	return &Server{cfg: cfg, slots: make(chan struct{}, cfg.ClientsMax), waiting: map[netip.Addr]chan *rnic.ConnRequest{}}, nil
}

// Serve accepts from l until ctx ends, then waits for the tests under way to be aborted. Its error is the Listener's.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, func(ctx context.Context, req *rnic.ConnRequest) {
		if !s.second(req) {
			s.handle(ctx, req)
		}
	})
}

// second hands over a request to the client whose second one it is.
func (s *Server) second(req *rnic.ConnRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.waiting[req.Remote().Addr()]
	if ch != nil {
		ch <- req // has room for the one
		delete(s.waiting, req.Remote().Addr())
	}
	return ch != nil
}

var errSameAddress = errors.New("perftest: another client at this address is in the middle of its hand-shake")

// await registers a client for its second connection. cancel, which may come late, gives a request back that nobody took.
func (s *Server) await(a netip.Addr) (ch chan *rnic.ConnRequest, cancel func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[a] != nil {
		return nil, nil, errSameAddress
	}
	ch = make(chan *rnic.ConnRequest, 1)
	s.waiting[a] = ch
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[a] == ch {
			delete(s.waiting, a)
		}
		select {
		case req := <-ch:
			refuse(req)
		default:
		}
	}, nil
}

const refuseTimeout = 5 * time.Second

func refuse(req *rnic.ConnRequest) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), refuseTimeout)
		defer cancel()
		_ = req.Reject(ctx, nil) // it has gone, or it hears it
	}()
}

// handle serves one client, from its first connection on.
func (s *Server) handle(ctx context.Context, req *rnic.ConnRequest) {
	out := Served{Remote: req.Remote(), Test: s.cfg.Test}
	begin := time.Now()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		x := session{s: s, out: &out}
		out.Err = x.run(ctx, req)
	default:
		refuse(req)
		out.Err = fmt.Errorf("perftest: %d other clients are being served, and no more at a time", s.cfg.ClientsMax)
	}
	out.Took = time.Since(begin)
	if s.cfg.Done != nil {
		s.cfg.Done(out)
	}
}

// session is one client.
type session struct {
	s   *Server
	out *Served
	c   *control
	e   *end
}

func (x *session) run(ctx context.Context, req *rnic.ConnRequest) (err error) {
	cfg := &x.s.cfg
	opt := cfg.QP
	opt.IRD, opt.ORD = 1, 1
	if x.c, err = newControl(cfg.Adapter, opt, true); err != nil {
		refuse(req)
		return err
	}
	defer x.c.release()
	idle, cancel := context.WithTimeout(ctx, cfg.IdleTimeout)
	defer cancel()
	second, forget, err := x.s.await(req.Remote().Addr()) // before the client can make it
	if err != nil {
		refuse(req)
		return err
	}
	defer forget()
	if err := req.Accept(idle, x.c.qp, nil); err != nil {
		return err
	}
	g, err := x.c.greet(idle)
	if err != nil {
		return x.explain(idle, err)
	}
	select {
	case req = <-second:
	case <-x.c.qp.Done():
		return over(idle, x.c.qp, ErrClosed)
	case <-idle.Done():
		return x.explain(idle, fmt.Errorf("perftest: the client's second connection: %w", idle.Err()))
	}
	if x.e, err = newEnd(cfg.Adapter, &cfg.Test, g, cfg.QP, true); err != nil {
		refuse(req)
		return err
	}
	defer x.e.release()
	if err := req.Accept(idle, x.e.QP, nil); err != nil {
		return err
	}
	return x.test(ctx)
}

// explain says "idle" where that is what has ended it.
func (x *session) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: nothing came from the client for %v", err, x.s.cfg.IdleTimeout)
	}
	return err
}

// test is what goes over both connections.
func (x *session) test(ctx context.Context) error {
	parent := ctx
	ctx, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { x.watch(ctx, stop) })
	defer watch.Wait()
	defer stop(nil)
	err := x.talk(ctx)
	x.out.Counters, _ = x.e.QP.Stats(parent) // for the user to see
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func (x *session) talk(ctx context.Context) error {
	t, mine := x.s.cfg.Test, x.e.place()
	p := x.e.program
	theirs, err := x.c.begin(ctx, p, &mine)
	if err != nil {
		return err
	}
	x.e.peer(theirs)
	if t.ServerFirst {
		// The client has said on its other connection that it is there, and waits.
		if err := x.e.QP.SpeakFirst(); err != nil {
			return over(ctx, x.e.QP, err)
		}
	}
	if err := x.e.Serve(ctx, t); err != nil {
		return fmt.Errorf("%v: %w; do both ends run the same program, with the same -n and -s?", p, err)
	}
	if x.out.Report, err = x.c.finish(ctx, p, &mine, Report{Size: uint64(t.Size)}); err != nil {
		return err
	}
	err = ended(ctx, x.e.QP)
	x.c.qp.Disconnect() // as perftest's server does: its clients may wait for it
	return errors.Join(err, ended(ctx, x.c.qp))
}

// moved is what shows that a client is at work.
type moved struct {
	placed                 rnic.Placed
	reads, fpdus, messages uint64
}

// watch ends a test in which nothing has moved on either connection for an IdleTimeout.
func (x *session) watch(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(x.s.cfg.IdleTimeout)
	defer tick.Stop()
	seen := [2]moved{{messages: ^uint64(0)}} // no such count yet
	for {
		var now [2]moved
		for i, qp := range []*rnic.QueuePair{x.c.qp, x.e.QP} {
			st, err := qp.Stats(ctx)
			if err != nil {
				return
			}
			now[i] = moved{st.Placed, st.ReadsServed, st.FPDUsSent, st.MessagesRecvd}
		}
		if now == seen {
			stop(fmt.Errorf("perftest: nothing came from the client for %v; do both ends run the same program, with the same -n and -s?", x.s.cfg.IdleTimeout))
			return
		}
		seen = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
