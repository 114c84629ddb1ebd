package iperf3

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// session is one test, seen from the server.
type session struct {
	server *Server
	cookie cookie
	ctl    control
	conns  chan dataConn // under server.mu: nil while no data connection is expected
}

// dataConn is a data connection; seq is its place in the order of acceptance, which is what gives
// streams their numbers.
type dataConn struct {
	conn net.Conn
	seq  int
}

// offer is called under server.mu; true: the connection is the session's now.
func (ses *session) offer(c cookie, conn net.Conn, seq int) bool {
	if c != ses.cookie {
		return false
	}
	select {
	case ses.conns <- dataConn{conn, seq}: // never for nil
		return true
	default:
		return false
	}
}

// closeJoined closes what came and was never used. Called under server.mu.
func (ses *session) closeJoined() {
	for ses.conns != nil {
		select {
		case j := <-ses.conns:
			_ = j.conn.Close()
		default:
			ses.conns = nil
		}
	}
}

func (ses *session) run(ctx context.Context) (*Report, error) {
	if err := ses.ctl.send(ParamExchange); err != nil {
		return nil, err
	}
	p, err := ses.params()
	if err != nil {
		return nil, ses.refuse(err)
	}
	if ses.server.cfg.Began != nil {
		ses.server.cfg.Began(ses.ctl.conn.RemoteAddr(), p)
	}
	ses.server.mu.Lock()
	ses.conns = make(chan dataConn, len(p.layout(true)))
	ses.server.mu.Unlock()
	if err := ses.ctl.send(CreateStreams); err != nil {
		return nil, err
	}
	next := ses.ctl.next()
	conns, err := ses.gather(ctx, len(p.layout(true)), next)
	if err == nil {
		err = prepare(ses.server.cfg.Transport, conns, p)
	}
	if err != nil {
		closeAll(conns)
		return nil, ses.refuse(err)
	}
	t := newTransfer(p, ses.server.cfg.Transport, conns, true)
	if err := ses.ctl.write([]byte{byte(TestStart), byte(TestRunning)}); err != nil {
		closeAll(conns)
		return nil, err
	}
	cpu := newCPUMeter()
	t.start()
	defer t.close()
	if err := ses.watch(ctx, t, next); err != nil {
		return nil, ses.refuse(err)
	}
	rep, err := ses.results(t, &cpu)
	if err != nil {
		return nil, ses.refuse(err)
	}
	return rep, nil
}

// refuse tells the client, as far as iperf3 has words for it, and returns why the test ended.
func (ses *session) refuse(err error) error {
	var peer *ProtocolError
	switch {
	case ses.ctl.ctx.Err() != nil: // which also is why reading failed
		err = ses.ctl.ctx.Err()
		_ = ses.ctl.send(ServerTerminate)
	case errors.As(err, &peer):
		ses.ctl.fail(peer.Code)
	}
	return err
}

func (ses *session) params() (Params, error) {
	var w wireParams
	if err := ses.ctl.readJSON(&w); err != nil {
		var p *ProtocolError
		if errors.As(err, &p) {
			return Params{}, err
		}
		return Params{}, &ProtocolError{Code: CodeParams, Reason: "no parameters", Err: err}
	}
	return w.params()
}

// gather waits for n data connections and returns them in the order in which they were accepted.
func (ses *session) gather(ctx context.Context, n int, next <-chan event) ([]net.Conn, error) {
	var all []dataConn
	conns := func() []net.Conn {
		slices.SortFunc(all, func(a, b dataConn) int { return cmp.Compare(a.seq, b.seq) })
		c := make([]net.Conn, len(all))
		for i, j := range all {
			c[i] = j.conn
			_ = j.conn.SetDeadline(time.Time{})
		}
		return c
	}
	late, stop := awake.After(ses.server.wait.message)
	defer func() { stop() }()
	for len(all) < n {
		select {
		case j := <-ses.conns:
			all = append(all, j)
			stop()
			late, stop = awake.After(ses.server.wait.message)
		case ev := <-next:
			return conns(), ses.early(ev)
		case <-late:
			return conns(), refusal(CodeAccept, "only %d of %s came", len(all), plural(n, "data connection"))
		case <-ctx.Done():
			return conns(), ctx.Err()
		}
	}
	return conns(), nil
}

// early judges what came on the control connection when nothing but TEST_END may come.
func (ses *session) early(ev event) error {
	// what iperf3 sends when a data connection cannot be set up at its end
	if ev.err == nil && ev.state == Done {
		return ErrTerminated
	}
	if err := ses.ctl.judge(ev.state, ev.err, TestEnd); err != nil {
		return err
	}
	return refusal(CodeAccept, "TEST_END before the test began")
}

// watch returns nil when the client ends the test.
func (ses *session) watch(ctx context.Context, t *transfer, next <-chan event) error {
	idle := ses.server.wait.idle
	tick := time.NewTicker(max(idle/looks, 1))
	defer tick.Stop()
	var hard <-chan struct{}
	if p := t.params; p.Time > 0 && p.limit() == 0 {
		var stop func()
		hard, stop = awake.After(p.Time + p.Omit + idle)
		defer stop()
	}
	failed := t.failed
	var broken error
	var grace <-chan time.Time
	seen, still := t.total(), 0
	for {
		select {
		case ev := <-next:
			if ev.err == nil && ev.state == TestEnd {
				t.over()
				return nil
			}
			return ses.early(ev)
		case broken = <-failed:
			failed = nil
			// a client that went away is told better by its control connection
			grace = time.After(time.Second)
		case <-grace:
			return &ProtocolError{Code: CodeRead, Reason: "a data connection failed", Err: broken}
		case <-hard:
			return refusal(CodeRead, "no TEST_END %v after the time was up", idle)
		case <-tick.C:
			n := t.total()
			if n != seen {
				still = 0
			} else if still++; still > looks {
				return refusal(CodeRead, "nothing moved for %v", idle)
			}
			seen = n
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// results exchanges what both sides counted, the client first. Our receivers read on until they
// have what it says it sent; with an omitted time the two ends began to count at different octets,
// so what is under way is left.
func (ses *session) results(t *transfer, cpu *cpuMeter) (*Report, error) {
	used := cpu.read()
	t.closeSenders()
	if err := ses.ctl.send(ExchangeResults); err != nil {
		return nil, err
	}
	var theirs wireResults
	if err := ses.ctl.readJSON(&theirs); err != nil {
		return nil, &ProtocolError{Code: CodeResults, Reason: "no results", Err: err}
	}
	if err := theirs.check(len(t.streams)); err != nil {
		return nil, err
	}
	sent := make(map[int]uint64, len(theirs.Streams))
	for _, s := range theirs.Streams {
		sent[s.ID] = uint64(s.Bytes)
	}
	t.drain(func(s *stream) uint64 {
		if t.params.Omit > 0 {
			return 0
		}
		return sent[s.id]
	}, ses.server.wait.drain)
	ours := t.results(used)
	if t.params.ServerOutput {
		ours.ServerOutput = serverText(t)
	}
	if err := ses.ctl.sendJSON(ours); err != nil {
		return nil, err
	}
	if err := ses.ctl.send(DisplayResults); err != nil {
		return nil, err
	}
	// The test is over; a client that closes instead of saying so has its results all the same.
	_ = ses.ctl.expect(Done)
	return newReport(t, true, ours, &theirs, ses.ctl.conn), nil
}
