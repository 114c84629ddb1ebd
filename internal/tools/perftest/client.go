package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// ClientConfig of one Run.
type ClientConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	// Test, of which the server's program must have been told Size, Iterations and RxDepth, too. No
	// Warmup; of Sends, of latencies and of both directions perftest's server must have been told a
	// Duration.
	Test perf.Test
	Shape
	Conn rnic.ConnParam // Dialect, NoMarkers, NoCRC, Packing, Quirks; the rest is Run's
	// ServerFirst is how long the server has to close each connection itself after the test, as
	// perftest's do. One that we close as soon as we have the last message can be in error at the
	// server before it knows that this message was sent (seen with siw, on either). Our own server
	// leaves it to the client.
	ServerFirst time.Duration
	// Connected, if set, is called when the test is about to begin, with the first QueuePair that
	// is measured, and Measured with the figures of each length, when what follows has shown that
	// both ends made that test. In a test in both directions they are those of both, as perftest
	// prints them.
	Connected func(*rnic.QueuePair)
	Measured  func(perf.Result)
}

// closeTimeout bounds the orderly end.
const closeTimeout = 10 * time.Second

// Run connects to a server of perftest's, measures, and closes. It returns the figures of the last
// length. Errors are QueuePair.Connect's, perf.End.Run's, and what the server said that no perftest
// says.
func Run(ctx context.Context, cfg ClientConfig) (perf.Result, error) {
	p, err := newPlan(cfg.Test, cfg.Shape)
	if err != nil {
		return perf.Result{}, err
	}
	c, err := newControl(cfg.Adapter, false)
	if err != nil {
		return perf.Result{}, err
	}
	defer c.release()
	if err := c.qp.Connect(ctx, cfg.Addr, controlParam(cfg.Conn)); err != nil {
		return perf.Result{}, err
	}
	g, err := c.greet(ctx, nil)
	if err != nil {
		return perf.Result{}, err
	}
	d := newDialer(ctx, &cfg, p, g, c)
	defer d.release()
	es, err := d.all()
	defer es.release()
	if err != nil {
		return perf.Result{}, fmt.Errorf("perftest: second connection: %w", err)
	}
	m := measurement{cfg: &cfg, plan: p, es: es}
	if err = m.run(ctx, c); err == nil {
		err = cfg.closeBoth(ctx, c, es)
	}
	if err == nil {
		m.tell()
	}
	return m.last, asked(ctx, err)
}

// asked adds the question to an error of a test that does not have it yet. How a test ends that the
// ends were told differently of depends on which of them notices first, and in what.
func asked(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || strings.HasSuffix(err.Error(), sameAtBothEnds) {
		return err
	}
	return fmt.Errorf("%w%s", err, sameAtBothEnds)
}

// run is what goes over all connections.
func (m *measurement) run(ctx context.Context, c *control) error {
	sound, stop := m.es.whileSound(ctx)
	defer stop()
	err := m.talk(sound, c)
	if err == nil {
		err = m.es.checkBoth(sound, m.plan)
	}
	if err != nil {
		err = m.es.reason(sound, err)
	}
	return err
}

// measurement is a client's part of the tests.
type measurement struct {
	cfg  *ClientConfig
	plan *plan
	es   ends
	last perf.Result
	// not reported yet: the end of the test, or the next one, shows first that it was one
	due []perf.Result
}

func (m *measurement) talk(ctx context.Context, c *control) error {
	mine := m.es.places()
	theirs, err := c.begin(ctx, m.plan.program(), mine)
	if err != nil {
		return err
	}
	m.es.peers(theirs)
	if m.cfg.Connected != nil {
		m.cfg.Connected(m.es[0].QP)
	}
	// the server begins when it has heard it
	run := func(t perf.Test) (Report, error) { return m.measure(ctx, c.spoke, t) }
	return c.tests(ctx, m.plan, &mine[0], run, m.told)
}

const MiB, million = 1 << 20, 1e6

// measure makes one test, which the server has not begun before a time.
func (m *measurement) measure(ctx context.Context, began time.Time, t perf.Test) (Report, error) {
	if m.plan.program().figures(t.Both) && t.Op == perf.Write && t.Size == m.plan.Size { // the last
		m.es[0].Flush = m.es.flush
	}
	res, err := m.es.perf(began, nil).Run(ctx, t)
	if err != nil {
		return Report{}, fmt.Errorf("%v: %w%s", m.plan, err, sameAtBothEnds)
	}
	m.last = res
	if !t.Both || t.Op == perf.Send && t.Duration > 0 { // else there is more to know
		m.know()
	}
	return reportOf(&res), nil
}

// told adds the server's figures to those of a test in both directions, as perftest does.
func (m *measurement) told(t perf.Test, _, theirs Report) {
	if !t.Both {
		return
	}
	m.last.Bandwidth += theirs.Average * MiB
	m.last.MessageRate += theirs.MessageRateM * million
	if m.last.Peak > 0 {
		m.last.Peak += theirs.Peak * MiB
	}
	m.know()
}

// know tells of the figures before these.
func (m *measurement) know() {
	m.tell()
	m.due = append(m.due, m.last)
}

func (m *measurement) tell() {
	for _, r := range m.due {
		if m.cfg.Measured != nil {
			m.cfg.Measured(r)
		}
	}
	m.due = m.due[:0]
}

func reportOf(res *perf.Result) Report {
	return Report{
		Size: uint64(res.Size), Iterations: res.Iterations,
		Peak: res.Peak / MiB, Average: res.Bandwidth / MiB, MessageRateM: res.MessageRate / million,
	}
}

// flush closes after the Writes and returns when the peer has closed, too, which it does when it
// has read all of them. Nothing else tells: the server's program answers on the other connection
// whether they have come or not, and then drops what has not.
func (es ends) flush(ctx context.Context) error {
	ctx, cancel := awake.Timeout(ctx, closeTimeout, nil)
	defer cancel()
	for _, e := range es {
		e.QP.Disconnect()
	}
	for _, e := range es {
		if err := e.QP.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ServerFirstDefault is ClientConfig.ServerFirst where it is 0.
const ServerFirstDefault = time.Second

// closeBoth closes first what was measured, as perftest does. All has been said by now, so that a
// server that resets a connection instead of closing it, as siw does for a program that ends, has
// lost nothing.
func (cfg *ClientConfig) closeBoth(ctx context.Context, c *control, es ends) error {
	ctx, cancel := awake.Timeout(ctx, closeTimeout, nil)
	defer cancel()
	wait := cmp.Or(cfg.ServerFirst, ServerFirstDefault)
	for _, e := range es {
		if err := closeSecond(ctx, e.QP, wait); err != nil {
			return err
		}
	}
	return closeSecond(ctx, c.qp, wait)
}

func closeSecond(ctx context.Context, qp *rnic.QueuePair, wait time.Duration) error {
	select {
	case <-qp.Done(): // the peer's end made ours
	case <-time.After(wait):
	case <-ctx.Done():
	}
	if err := qp.Close(ctx); !errors.Is(err, stack.ErrReset) {
		return err
	}
	return nil
}
