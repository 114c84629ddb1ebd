package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// DefaultPort is perftest's.
const DefaultPort = 18515

// ServerConfig of a Server.
type ServerConfig struct {
	Adapter *rnic.Adapter
	// Test is the one that all clients make: Op and Latency say which program they are, Size and
	// Iterations what they were told (-s and -n), RxDepth how many receive buffers a test of Sends
	// has (-r). Where they were told a Duration (-D) it needs one, too.
	Test perf.Test
	Shape
	// ClientsMax is how many are served at a time (default 8), each from an address of its own.
	ClientsMax int
	// IdleTimeout ends a test in which nothing moves for so long (default 30 s).
	IdleTimeout time.Duration
	// GreetTimeout is how long a client has from its first connection to its second (default 10 s).
	// What its address connects between the Server's last word and that one is taken for it: nothing
	// in a request tells them apart.
	GreetTimeout time.Duration
	Conn         rnic.ConnParam // NoMarkers, NoCRC; the rest is the Server's
	// Done, if set, is told of each client when it has gone; called from several goroutines.
	Done func(Served)
}

// Served is a client that has gone. Err is nil when its test was made to its end.
type Served struct {
	Remote netip.AddrPort
	// as it came: Size and Iterations of Writes without answers, and of Reads, are the client's to
	// choose
	Test  perf.Test
	Shape Shape // as it was told
	// the client's figures; of ib_write_bw and ib_read_bw, and of tests in both directions
	Report   Report
	Counters rnic.Stats // of the first connection that was measured
	Octets   uint64     // placed, on all of them; of Reads: sent
	Direct   uint64     // of those that were placed: directly
	Reads    uint64     // that were answered
	Took     time.Duration
	Err      error
}

// came finds out what was made of a Test, where a client that was told something else goes through
// with it all the same. Its figures say how many Writes there were; how many octets each had shows
// in the octets placed.
func (s *Served) came() {
	if s.Shape.All || s.Shape.Both {
		return
	}
	n := s.Report.Iterations
	if s.Test.Op == perf.Read {
		n = s.Reads
	}
	if n > 0 && s.Octets >= n && s.Octets%n == 0 {
		s.Test.Size, s.Test.Iterations = int(s.Octets/n), int(n)
	}
}

// Server is what perftest's clients connect to.
type Server struct {
	cfg    ServerConfig
	plan   *plan
	places peer.Places

	mu      sync.Mutex
	waiting map[netip.Addr]*seconds // whose second connection is to come, and those after it
}

// seconds are the connections of a client that are to be measured.
type seconds struct {
	addr  netip.Addr
	first *rnic.QueuePair        // over which the client was told to make them
	ch    chan *rnic.ConnRequest // has room for all
	left  int                    // that have not come
	over  chan struct{}          // is closed when no more are taken for one of them
}

// NewServer makes a Server, or says why there can be none for such a Test; Serve runs it.
func NewServer(cfg ServerConfig) (*Server, error) {
	p, err := newPlan(cfg.Test, cfg.Shape)
	if err != nil {
		return nil, err
	}
	cfg.Shape = p.Shape
	if cfg.ClientsMax <= 0 {
		cfg.ClientsMax = 8
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	if cfg.GreetTimeout <= 0 {
		cfg.GreetTimeout = 10 * time.Second
	}
	return &Server{cfg: cfg, plan: p, places: peer.NewPlaces(cfg.ClientsMax),
		waiting: map[netip.Addr]*seconds{}}, nil
}

// Serve accepts from l until ctx ends, then waits for the tests under way to be aborted. Its error
// is the Listener's.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, s.Handle)
}

// second hands over a request to the client whose second one it is. One whose first connection has
// ended makes no second.
func (s *Server) second(req *rnic.ConnRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[req.Remote().Addr()]
	if w == nil || w.first.State() != rnic.RTS {
		return false
	}
	w.ch <- req
	if w.left--; w.left == 0 {
		s.leave(w)
	}
	return true
}

// leave, under mu, makes room for the next client at an address.
func (s *Server) leave(w *seconds) {
	if s.waiting[w.addr] == w {
		delete(s.waiting, w.addr)
		close(w.over)
	}
}

var errSameAddress = errors.New(
	"perftest: another client at this address is in the middle of its handshake" + peer.Later)

// await registers a client for the connections that are to be measured, after the one before it at
// its address.
func (s *Server) await(ctx context.Context, a netip.Addr, first *rnic.QueuePair) (*seconds, error) {
	w := &seconds{a, first, make(chan *rnic.ConnRequest, s.plan.QPs), s.plan.QPs, make(chan struct{})}
	for {
		before := s.enter(w)
		if before == w {
			return w, nil
		}
		select {
		case <-before.over:
		case <-first.Done():
			return nil, over(ctx, first, ErrClosed)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errSameAddress, ctx.Err())
		}
	}
}

// enter is what is registered at the address of w: w where nothing was.
func (s *Server) enter(w *seconds) *seconds {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.waiting[w.addr]; before != nil {
		return before
	}
	s.waiting[w.addr] = w
	return w
}

// forget ends what await began, if it did, and gives requests back that were not taken.
func (s *Server) forget(w *seconds) {
	if w == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(w)
	for {
		select {
		case req := <-w.ch:
			refuse(req)
		default:
			return
		}
	}
}

const refuseTimeout = 5 * time.Second

func refuse(req *rnic.ConnRequest) {
	go func() {
		ctx, cancel := awake.Timeout(context.Background(), refuseTimeout, nil)
		defer cancel()
		_ = req.Reject(ctx, nil) // it has gone, or it hears it
	}()
}

// accept is ConnRequest.Accept, and refuses the client for which there is no room here.
func accept(ctx context.Context, req *rnic.ConnRequest, qp *rnic.QueuePair,
	conn rnic.ConnParam) error {
	err := req.Accept(ctx, qp, conn)
	if err != nil && qp.State() == rnic.Idle {
		refuse(req)
	}
	return err
}

// Handle serves one client, from its first connection on; the second belongs to it.
func (s *Server) Handle(ctx context.Context, req *rnic.ConnRequest) {
	if s.second(req) {
		return
	}
	out := Served{Remote: req.Remote(), Test: s.plan.Test, Shape: s.plan.Shape}
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
	es  ends
}

func (x *session) run(ctx context.Context, req *rnic.ConnRequest) (err error) {
	cfg := &x.s.cfg
	if x.c, err = newControl(cfg.Adapter, true); err != nil {
		refuse(req)
		return err
	}
	defer x.c.release()
	greeting, cancel := awake.Timeout(ctx, cfg.GreetTimeout, nil)
	defer cancel()
	if err := accept(greeting, req, x.c.qp, controlParam(cfg.Conn)); err != nil {
		return err
	}
	var second *seconds
	defer func() { x.s.forget(second) }()
	// before the client can make it
	g, err := x.c.greet(greeting, func(ctx context.Context) (err error) {
		second, err = x.s.await(ctx, req.Remote().Addr(), x.c.qp)
		return err
	})
	if err != nil {
		return x.explain(greeting, err)
	}
	defer func() { x.es.release() }()
	if err := x.accept(greeting, second.ch, g); err != nil {
		return err
	}
	return x.test(ctx)
}

// accept takes the connections that are to be measured, in the order in which they come.
func (x *session) accept(ctx context.Context, second chan *rnic.ConnRequest, g terms) error {
	cfg, p := &x.s.cfg, x.s.plan
	var pd *rnic.ProtectionDomain
	if p.QPs > 1 {
		pd = cfg.Adapter.AllocPD()
	}
	for i := range p.QPs {
		var req *rnic.ConnRequest
		select {
		case req = <-second:
		case <-x.c.qp.Done():
			return over(ctx, x.c.qp, ErrClosed)
		case <-ctx.Done():
			return x.explain(ctx, fmt.Errorf("perftest: connection %d of the %d to be measured: %w", i+1,
				p.QPs, ctx.Err()))
		}
		e, err := newEnd(cfg.Adapter, p, g, pd, true)
		if err != nil {
			refuse(req)
			return err
		}
		x.es = append(x.es, e)
		if err := accept(ctx, req, e.QP, p.connParam(cfg.Conn)); err != nil {
			return err
		}
	}
	return nil
}

// explain says that the client was silent where that is what has ended it.
func (x *session) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: nothing came from the client for %v", err, x.s.cfg.GreetTimeout)
	}
	return err
}

// test is what goes over all connections.
func (x *session) test(ctx context.Context) error {
	silent := fmt.Errorf("perftest: nothing came from the client for %v%s", x.s.cfg.IdleTimeout,
		sameAtBothEnds)
	watched, stop := peer.Watch(ctx, x.s.cfg.IdleTimeout, silent, x.moved)
	defer stop()
	sound, stopSound := x.es.whileSound(watched)
	defer stopSound()
	err := x.talk(sound)
	if err != nil {
		err = x.es.reason(sound, err)
	}
	x.look(ctx)
	x.out.came()
	return err
}

// look counts, for the user to see.
func (x *session) look(ctx context.Context) {
	for i, e := range x.es {
		st, err := e.QP.Stats(ctx)
		if err != nil {
			return
		}
		if i == 0 {
			x.out.Counters = st
		}
		x.out.Reads += st.ReadsServed
		if x.out.Test.Op == perf.Read {
			x.out.Octets += st.PayloadSent
		} else {
			x.out.Octets += st.Placed.Direct + st.Placed.Reassembled
			x.out.Direct += st.Placed.Direct
		}
	}
}

func (x *session) talk(ctx context.Context) error {
	p, mine := x.s.plan, x.es.places()
	theirs, err := x.c.begin(ctx, p.program(), mine)
	if err != nil {
		return err
	}
	x.es.peers(theirs)
	if !p.Latency && p.Op != perf.Send {
		x.c.before = x.checkDirections
	}
	run := func(t perf.Test) (Report, error) { return x.serve(ctx, t) }
	told := func(_ perf.Test, _, theirs Report) { x.out.Report = theirs }
	if err := x.c.tests(ctx, p, &mine[0], run, told); err != nil {
		return err
	}
	if err := x.es.checkBoth(ctx, p); err != nil {
		return err
	}
	for _, e := range x.es {
		err = errors.Join(err, peer.Over(ctx, e.QP, nil))
	}
	x.c.qp.Disconnect() // as perftest's server does: its clients may wait for it
	return errors.Join(err, peer.Over(ctx, x.c.qp, nil))
}

// serve is the server's part of one test.
func (x *session) serve(ctx context.Context, t perf.Test) (Report, error) {
	if t.ServerFirst {
		// The client has said on its other connection that it is there, and waits.
		if err := x.es[0].QP.PeerReady(); err != nil {
			return Report{}, over(ctx, x.es[0].QP, err)
		}
	}
	if t.Both {
		res, err := x.es.perf(time.Time{}, nil).Run(ctx, t)
		if err != nil {
			return Report{}, fmt.Errorf("%v: %w%s", x.s.plan, err, sameAtBothEnds)
		}
		return reportOf(&res), nil
	}
	var over func() bool
	if t.Duration > 0 { // nothing else says when that is over
		over, t.Duration = x.c.heard, 0
	}
	if err := x.es.perf(time.Time{}, over).Serve(ctx, t); err != nil {
		return Report{}, fmt.Errorf("%v: %w%s", x.s.plan, err, sameAtBothEnds)
	}
	return Report{Size: uint64(t.Size)}, nil
}

// checkDirections finds out whether both ends were told the same of -b: nothing in the handshake
// would be different. The client's first message after the Places comes before the first octet of a
// test in both directions, and after the last of any other.
func (x *session) checkDirections(ctx context.Context) error {
	if x.s.plan.Shape.Both {
		if n, err := x.es.came(ctx); n > 0 || err != nil {
			return cmp.Or(err, errors.New("perftest: the client has begun without waiting for this end: "+
				"it was told no -b, both directions, and this end was"))
		}
		return nil
	}
	if n, err := x.es.awaitCome(ctx, 1); n == 0 || err != nil {
		return cmp.Or(err, errors.New("perftest: the client waits for this end to begin: it was told "+
			"-b, both directions, and this end was not"))
	}
	return nil
}

// moved is what shows that the client is at work, on any connection.
func (x *session) moved(ctx context.Context) (all [1 + QPsMax]perf.Moved, err error) {
	if all[0], err = perf.MovedOver(ctx, x.c.qp); err != nil {
		return all, err
	}
	for i, e := range x.es {
		if all[1+i], err = perf.MovedOver(ctx, e.QP); err != nil {
			return all, err
		}
	}
	return all, nil
}
