package pair

import (
	"context"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// ClientConfig of one Run.
type ClientConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	Test    perf.Test
	Conn    rnic.ConnParam // Dialect, NoMarkers, NoCRC, Packing; the rest is Run's
	// Connected, if set, is called when the test is about to begin.
	Connected func(*rnic.QueuePair)
}

// closeTimeout bounds the orderly end.
const closeTimeout = 5 * time.Second

// Run connects to a Server, measures, and closes. Errors are QueuePair.Connect's, what the server
// said when it refused, and perf.End.Run's.
func Run(ctx context.Context, cfg ClientConfig) (perf.Result, error) {
	t := cfg.Test
	t.TxDepth, t.RxDepth = max(t.TxDepth, 1), max(t.RxDepth, 1)
	if err := checkTest(&t, SizeLimit); err != nil {
		return perf.Result{}, fmt.Errorf("perf: %w", err)
	}
	e, err := newEnd(cfg.Adapter, &t, false)
	if err != nil {
		return perf.Result{}, err
	}
	defer e.Release()
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
		return res, peer.Reason(e.QP, err)
	}
	closing, cancel := awake.Timeout(ctx, closeTimeout, nil)
	defer cancel()
	return res, e.QP.Close(closing)
}

// dial connects and learns of the server's memory.
func (e end) dial(ctx context.Context, cfg *ClientConfig, t *perf.Test) error {
	err := e.QP.Connect(ctx, cfg.Addr,
		connParam(cfg.Conn, request{test: *t, place: e.place(t)}.marshal()))
	if err != nil {
		return peer.Refusal("perf", err)
	}
	p, err := parseReply(e.QP.PeerPrivateData())
	if err != nil {
		return err
	}
	e.peer(p)
	return nil
}

// last tells the server that all is said and waits until it has it.
func (e end) last(ctx context.Context) error {
	_, err := e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: e.Local.Slice(e.SendAt, lastLen),
		Solicited: true})
	if err != nil {
		return err
	}
	c, err := peer.Next(ctx, e.RecvCQ)
	switch {
	case err != nil:
		return fmt.Errorf("perf: waiting for the server's last message: %w", err)
	case c.Status == rnic.Success:
		return nil
	}
	return peer.Over(ctx, e.QP, perf.ErrEnded)
}
