package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/cmd/rnicd/peer"
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
	// GreetTimeout is how long a client has from its first connection to its second (default 10 s). Until then whatever its address connects
	// is taken for that one.
	GreetTimeout time.Duration
	QP           rnic.QPOptions // NoMarkers, NoCRC; the rest is the Server's
	// Done, if set, is told of each client when it has gone; called from several goroutines.
	Done func(Served)
}

// Served is a client that has gone. Err is nil when its test was made to its end.
type Served struct {
	Remote   netip.AddrPort
	Test     perf.Test  // as it came: Size and Iterations of Writes without answers, and of Reads, are the client's to choose
	Report   Report     // the client's figures; of ib_write_bw and ib_read_bw
	Counters rnic.Stats // of the connection that was measured
	Took     time.Duration
	Err      error
}

// came finds out what was made of a Test, where a client that was told something else goes through with it all the same. Its figures
// say how many Writes there were, and nobody how many octets each had but the memory that has them.
func (s *Served) came() {
	n, octets := s.Report.Iterations, s.Counters.Placed.Direct+s.Counters.Placed.Reassembled
	if s.Test.Op == perf.Read {
		n, octets = s.Counters.ReadsServed, s.Counters.PayloadSent
	}
	if n > 0 && octets%n == 0 {
		s.Test.Size, s.Test.Iterations = int(octets/n), int(n)
	}
}

// Server is what perftest's clients connect to.
type Server struct {
	cfg    ServerConfig
	places peer.Places

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
	if cfg.GreetTimeout <= 0 {
		cfg.GreetTimeout = 10 * time.Second
	}
	return &Server{cfg: cfg, places: peer.NewPlaces(cfg.ClientsMax), waiting: map[netip.Addr]chan *rnic.ConnRequest{}}, nil
}

// Serve accepts from l until ctx ends, then waits for the tests under way to be aborted. Its error is the Listener's.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, s.handle)
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

// handle serves one client, from its first connection on, of which the second is a part.
func (s *Server) handle(ctx context.Context, req *rnic.ConnRequest) {
	if s.second(req) {
		return
	}
	out := Served{Remote: req.Remote(), Test: s.cfg.Test}
	begin := time.Now()
	if err := s.places.Take(ctx); err != nil {
		refuse(req)
		out.Err = fmt.Errorf("perftest: %w", err)
	} else {
		defer s.places.Leave()
		x := session{s: s, out: &out}
		out.Err = x.run(ctx, req)
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
	greeting, cancel := context.WithTimeout(ctx, cfg.GreetTimeout)
	defer cancel()
	second, forget, err := x.s.await(req.Remote().Addr()) // before the client can make it
	if err != nil {
		refuse(req)
		return err
	}
	defer forget()
	if err := req.Accept(greeting, x.c.qp, nil); err != nil {
		return err
	}
	g, err := x.c.greet(greeting)
	if err != nil {
		return x.explain(greeting, err)
	}
	select {
	case req = <-second:
	case <-x.c.qp.Done():
		return over(greeting, x.c.qp, ErrClosed)
	case <-greeting.Done():
		return x.explain(greeting, fmt.Errorf("perftest: the client's second connection: %w", greeting.Err()))
	}
	if x.e, err = newEnd(cfg.Adapter, &cfg.Test, g, cfg.QP, true); err != nil {
		refuse(req)
		return err
	}
	defer x.e.Release()
	if err := req.Accept(greeting, x.e.QP, nil); err != nil {
		return err
	}
	return x.test(ctx)
}

// explain says that the client was silent where that is what has ended it.
func (x *session) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: nothing came from the client for %v", err, x.s.cfg.GreetTimeout)
	}
	return err
}

// test is what goes over both connections.
func (x *session) test(ctx context.Context) error {
	silent := fmt.Errorf("perftest: nothing came from the client for %v; do both ends run the same program, with the same -n and -s?", x.s.cfg.IdleTimeout)
	watched, stop := peer.Watch(ctx, x.s.cfg.IdleTimeout, silent, x.moved)
	defer stop()
	err := x.talk(watched)
	x.out.Counters, _ = x.e.QP.Stats(ctx) // for the user to see
	x.out.came()
	if cause := context.Cause(watched); err != nil && cause != nil {
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
	err = peer.Over(ctx, x.e.QP, nil)
	x.c.qp.Disconnect() // as perftest's server does: its clients may wait for it
	return errors.Join(err, peer.Over(ctx, x.c.qp, nil))
}

// moved is what shows that the client is at work, on either connection.
func (x *session) moved(ctx context.Context) (both [2]perf.Moved, err error) {
	for i, qp := range []*rnic.QueuePair{x.c.qp, x.e.QP} {
		if both[i], err = perf.MovedOver(ctx, qp); err != nil {
			return both, err
		}
	}
	return both, nil
}
