package pair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/rnic"
)

// ClientConfig of one Run.
type ClientConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	Test    perf.Test
	QP      rnic.QPOptions // Dialect, NoMarkers, NoCRC, Packing; the rest is Run's
	// Connected, if set, is called when the test is about to begin.
	Connected func(*rnic.QueuePair)
}

// closeTimeout bounds the orderly end.
const closeTimeout = 5 * time.Second

// Run connects to a Server, measures, and closes. Errors are QueuePair.Connect's, what the server said when it refused, and perf.End.Run's.
func Run(ctx context.Context, cfg ClientConfig) (perf.Result, error) {
	t := cfg.Test
	t.TxDepth, t.RxDepth = max(t.TxDepth, 1), max(t.RxDepth, 1)
	if err := checkTest(&t, SizeLimit); err != nil {
		return perf.Result{}, fmt.Errorf("perf: %w", err)
	}
	e, err := newEnd(cfg.Adapter, &t, cfg.QP, false)
	if err != nil {
		return perf.Result{}, err
	}
	defer e.release()
	if err := e.dial(ctx, &cfg, &t); err != nil {
		return perf.Result{}, err
	}
	if cfg.Connected != nil {
		cfg.Connected(e.QP)
	}
	if !t.Latency {
		e.Flush = e.last
	}
	res, err := e.Run(ctx, t)
	if err == nil && t.Latency {
		err = e.last(ctx)
	}
	if err != nil {
		return res, e.explain(err)
	}
	closing, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	return res, e.QP.Close(closing)
}

// dial connects and learns of the server's memory.
func (e *end) dial(ctx context.Context, cfg *ClientConfig, t *perf.Test) error {
	err := e.QP.Connect(ctx, cfg.Addr, request{test: *t, place: e.place(t)}.marshal())
	var rejected *rnic.RejectedError
	if errors.As(err, &rejected) {
		if text, ok := parseRefusal(rejected.PrivateData); ok {
			return &RefusedError{Text: text}
		}
	}
	if err != nil {
		return err
	}
	p, err := parseReply(e.QP.PeerPrivateData())
	if err != nil {
		return err
	}
	e.peer(p)
	return nil
}

// RefusedError is the server's own no.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return "perf: the server refused: " + e.Text }

// last tells the server that all is said and waits until it has it.
func (e *end) last(ctx context.Context) error {
	err := e.QP.PostSend(rnic.WorkRequest{Local: e.Local.Slice(e.SendAt, lastLen), Solicited: true})
	if err != nil {
		return err
	}
	var c [1]rnic.Completion
	for e.RecvCQ.Poll(c[:]) == 0 {
		if err := e.RecvCQ.Wait(ctx); err != nil {
			return fmt.Errorf("perf: waiting for the server's last message: %w", err)
		}
	}
	if c[0].Status == rnic.Success {
		return nil
	}
	return e.over(ctx)
}

// over is how the connection ended, which is about to.
func (e *end) over(ctx context.Context) error {
	select {
	case <-e.QP.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := e.QP.Err(); err != nil {
		return err
	}
	return perf.ErrEnded
}
