package perftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// ClientConfig of one Run.
type ClientConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	// Test, of which the server's program must have been told Size, Iterations and RxDepth, too. No Duration, no Warmup.
	Test perf.Test
	QP   rnic.QPOptions // Dialect, NoMarkers, NoCRC, Nudge, Packing; the rest is Run's
	// ServerFirst is how long the server has to close each connection itself behind the test, as perftest's do. One that we close as soon
	// as we have the last message can be in error at the server before it knows that this message was sent (seen with siw, on either).
	// Our own server leaves it to the client.
	ServerFirst time.Duration
	// Connected, if set, is called when the test is about to begin, with the QueuePair that is measured.
	Connected func(*rnic.QueuePair)
}

// closeTimeout bounds the orderly end.
const closeTimeout = 10 * time.Second

// Run connects to a server of perftest's, measures, and closes. Errors are QueuePair.Connect's, perf.End.Run's, and what the server
// said that no perftest says.
func Run(ctx context.Context, cfg ClientConfig) (perf.Result, error) {
	t := cfg.Test
	t.TxDepth = min(max(t.TxDepth, 1), max(t.Iterations, 1))
	if t.Op != perf.Send {
		t.RxDepth = 1
	}
	t.RxDepth = min(t.RxDepth, t.Iterations) // as perftest
	t.ServerFirst = t.Op == perf.Write && t.Latency
	if err := check(&t); err != nil {
		return perf.Result{}, err
	}
	opt := cfg.QP
	opt.IRD, opt.ORD = 1, 1
	c, err := newControl(cfg.Adapter, opt, false)
	if err != nil {
		return perf.Result{}, err
	}
	defer c.release()
	if err := c.qp.Connect(ctx, cfg.Addr, nil); err != nil {
		return perf.Result{}, err
	}
	g, err := c.greet(ctx)
	if err != nil {
		return perf.Result{}, err
	}
	e, err := second(ctx, &cfg, &t, g, c)
	if err != nil {
		return perf.Result{}, fmt.Errorf("perftest: second connection: %w", err)
	}
	defer e.Release()
	res, err := measure(ctx, &cfg, &t, c, e)
	if err != nil {
		return res, err
	}
	return res, cfg.closeBoth(ctx, c, e)
}

// A server of perftest's stops listening when the first connection is there, and begins again for the second: a moment late, and
// its own clients, too, try for some time.
const (
	secondPatience = 10 * time.Second
	secondPause    = 20 * time.Millisecond
)

// second makes the connection that is measured.
func second(ctx context.Context, cfg *ClientConfig, t *perf.Test, g terms, c *control) (*end, error) {
	until := time.Now().Add(secondPatience)
	for {
		e, err := newEnd(cfg.Adapter, t, g, cfg.QP, false)
		if err != nil {
			return nil, err
		}
		if err = e.QP.Connect(ctx, cfg.Addr, nil); err == nil {
			return e, nil
		}
		e.Release()
		if !errors.Is(err, stack.ErrRefused) || !time.Now().Before(until) {
			return nil, err
		}
		select {
		case <-time.After(secondPause):
		case <-c.qp.Done():
			return nil, c.over(ctx, err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// measure is what goes over both connections.
func measure(ctx context.Context, cfg *ClientConfig, t *perf.Test, c *control, e *end) (perf.Result, error) {
	mine := e.place()
	theirs, err := c.begin(ctx, e.program, &mine)
	if err != nil {
		return perf.Result{}, err
	}
	e.peer(theirs)
	if cfg.Connected != nil {
		cfg.Connected(e.QP)
	}
	if t.Op == perf.Write && !t.Latency {
		e.Flush = e.last
	}
	res, err := e.Run(ctx, *t)
	if err != nil {
		return res, fmt.Errorf("%v: %w; do both ends run the same program, with the same -n and -s?", e.program, err)
	}
	const MiB, million = 1 << 20, 1e6
	_, err = c.finish(ctx, e.program, &mine, Report{
		Size: uint64(t.Size), Iterations: res.Iterations,
		Peak: res.Peak / MiB, Average: res.Bandwidth / MiB, MessageRateM: res.MessageRate / million,
	})
	return res, err
}

// last closes behind the Writes and returns when the peer has closed, too, which it does when it has read all of them. Nothing else
// tells: the server's program answers on the other connection whether they have come or not, and then drops what has not.
func (e *end) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	return e.QP.Close(ctx)
}

// ServerFirstDefault is ClientConfig.ServerFirst where it is 0.
const ServerFirstDefault = time.Second

// closeBoth closes first what was measured, as perftest does. All has been said by now, so that a server that resets a connection
// instead of closing it, as siw does for a program that ends, has lost nothing.
func (cfg *ClientConfig) closeBoth(ctx context.Context, c *control, e *end) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	wait := cmp.Or(cfg.ServerFirst, ServerFirstDefault)
	return cmp.Or(closeSecond(ctx, e.QP, wait), closeSecond(ctx, c.qp, wait))
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
