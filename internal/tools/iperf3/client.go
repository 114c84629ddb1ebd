package iperf3

import (
	"context"
	"net"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// ClientConfig says what a client tests.
type ClientConfig struct {
	Params    Params
	Dial      func(ctx context.Context) (net.Conn, error) // the same server each time
	Transport Transport                                   // may be nil
	// ends a test in which nothing moves for so long; 0: 30 s
	Idle time.Duration
}

// settlePoll is how often a client looks whether all it wrote is acknowledged.
const settlePoll = 5 * time.Millisecond

// Run runs one test. When ctx is done it tells the server and returns ctx's error.
func Run(ctx context.Context, cfg ClientConfig) (*Report, error) {
	if err := cfg.Params.Check(); err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, wait: timeouts{idle: cfg.Idle}.orDefault(), cookie: newCookie()}
	return c.run(ctx)
}

type client struct {
	cfg    ClientConfig
	wait   timeouts
	cookie cookie
	ctl    control
}

func (c *client) run(ctx context.Context) (*Report, error) {
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	c.ctl = control{ctx: ctx, conn: conn, timeout: c.wait.message}
	defer conn.Close()
	defer c.ctl.interruptible()()
	rep, err := c.test(ctx)
	if err == nil {
		return rep, nil
	}
	_ = c.ctl.send(ClientTerminate) // if the server does not know that already
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, err
}

// open dials and sends the cookie.
func (c *client) open(ctx context.Context) (net.Conn, error) {
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	ctl := control{ctx: ctx, conn: conn, timeout: c.wait.message}
	if err := ctl.write(c.cookie[:]); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

func (c *client) test(ctx context.Context) (*Report, error) {
	if err := c.ctl.expect(ParamExchange); err != nil {
		return nil, err
	}
	if err := c.ctl.sendJSON(c.cfg.Params.wire()); err != nil {
		return nil, err
	}
	if err := c.ctl.expect(CreateStreams); err != nil {
		return nil, err
	}
	conns, err := c.connect(ctx)
	if err == nil {
		err = c.ctl.expect(TestStart)
	}
	if err == nil {
		err = c.ctl.expect(TestRunning)
	}
	if err != nil {
		closeAll(conns)
		return nil, err
	}
	cpu := newCPUMeter()
	t := newTransfer(c.cfg.Params, c.cfg.Transport, conns, false)
	next := c.ctl.next()
	t.start()
	defer t.close()
	if err := c.watch(ctx, t, next); err != nil {
		return nil, err
	}
	return c.results(ctx, t, &cpu, next)
}

// connect opens the data connections one after the other: their order gives them their numbers.
func (c *client) connect(ctx context.Context) ([]net.Conn, error) {
	var conns []net.Conn
	for range c.cfg.Params.layout(false) {
		conn, err := c.open(ctx)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
	}
	return conns, prepare(c.cfg.Transport, conns, c.cfg.Params)
}

// watch returns nil when the test has run its time, or has sent and received what it was to.
func (c *client) watch(ctx context.Context, t *transfer, next <-chan event) error {
	tick := time.NewTicker(max(c.wait.idle/looks, 1))
	defer tick.Stop()
	var timeUp <-chan time.Time
	var sent <-chan struct{}
	wantSent, wantReceived := t.limit > 0 && t.sends(true), t.limit > 0 && t.sends(false)
	if t.limit == 0 {
		timer := time.NewTimer(t.params.Time + t.params.Omit)
		defer timer.Stop()
		timeUp = timer.C
	} else if wantSent {
		sent = t.sendersDone()
	}
	seen, still := t.total(), 0
	for {
		select {
		case <-sent:
			sent, wantSent = nil, false
		case <-t.reached:
			wantReceived = false
		case <-timeUp:
			return nil
		case ev := <-next:
			return c.ctl.judge(ev.state, ev.err, TestEnd) // which a server does not send
		case err := <-t.failed:
			return c.whyFailed(err, next)
		case <-tick.C:
			n := t.total()
			if n != seen {
				still = 0
			} else if still++; still > looks {
				return refusal(CodeRead, "nothing moved for %v", c.wait.idle)
			}
			seen = n
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.limit > 0 && !wantSent && !wantReceived {
			return nil
		}
	}
}

// whyFailed prefers what the server says on the control connection to what befell a data
// connection.
func (c *client) whyFailed(cause error, next <-chan event) error {
	select {
	case ev := <-next:
		return c.ctl.judge(ev.state, ev.err, TestEnd)
	case <-time.After(time.Second):
		return &ProtocolError{Reason: "a data connection failed", Err: cause}
	}
}

// settle waits until all that was written has arrived, as far as that is known: iperf3's server
// counts nothing that it has not read when TEST_END comes.
func (c *client) settle(ctx context.Context, t *transfer) {
	if c.cfg.Transport == nil || !t.sends(true) {
		return
	}
	late, stop := awake.After(c.wait.drain)
	defer stop()
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for quiet := 0; quiet < 2; { // acknowledged is not yet read: one more turn for that
		unacked := 0
		for _, s := range t.streams {
			if s.sends {
				unacked += c.cfg.Transport.Info(s.conn).Unacked
			}
		}
		if unacked == 0 {
			quiet++
		}
		select {
		case <-poll.C:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *client) results(ctx context.Context, t *transfer, cpu *cpuMeter,
	next <-chan event) (*Report, error) {
	t.over()
	used := cpu.read()
	c.settle(ctx, t)
	if err := c.ctl.send(TestEnd); err != nil {
		return nil, err
	}
	if err := c.ctl.allow(c.wait.message); err != nil {
		return nil, err
	}
	ev := <-next
	if err := c.ctl.judge(ev.state, ev.err, ExchangeResults); err != nil {
		return nil, err
	}
	// The server has closed what it sent on, so each stream has an end.
	t.drain(nil, c.wait.drain)
	ours := t.results(used)
	if err := c.ctl.sendJSON(ours); err != nil {
		return nil, err
	}
	var theirs wireResults
	if err := c.ctl.readJSON(&theirs); err != nil {
		return nil, &ProtocolError{Code: CodeResults, Reason: "no results", Err: err}
	}
	if err := theirs.check(len(t.streams)); err != nil {
		return nil, err
	}
	if err := c.ctl.expect(DisplayResults); err != nil {
		return nil, err
	}
	if err := c.ctl.send(Done); err != nil {
		return nil, err
	}
	return newReport(t, false, ours, &theirs, c.ctl.conn), nil
}
