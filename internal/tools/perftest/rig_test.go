package perftest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 30 * time.Second

// rig is a Server and what is needed for clients of it.
type rig struct {
	t    *testing.T
	ctx  context.Context
	devs [2]*rnic.Adapter // client, server
	addr string
	gone chan Served

	server  *Server
	control *control // of firstGreeted
	// waits: a request waits, for its place or what is after that; not that of a second connection.
	waits chan struct{}
}

// overBoth runs a test over kernel sockets and over our TCP.
func overBoth(t *testing.T, cfg ServerConfig, f func(r *rig)) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) { f(newRig(t, devs, cfg)) })
}

func newRig(t *testing.T, devs [2]*rnic.Adapter, cfg ServerConfig) *rig {
	t.Helper()
	r := &rig{t: t, devs: devs, gone: make(chan Served, 16), waits: make(chan struct{}, 64)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	done := cfg.Done
	cfg.Adapter, cfg.Done = devs[1], func(s Served) {
		r.gone <- s
		if done != nil {
			done(s)
		}
	}
	var err error
	r.server, err = NewServer(cfg)
	require.NoError(t, err)
	r.addr = testnic.Serve(r.ctx, t, devs[1], r.waits, r.server.Handle)
	return r
}

// served is what the Server says of a client that has gone.
func (r *rig) served() Served {
	r.t.Helper()
	select {
	case s := <-r.gone:
		return s
	case <-r.ctx.Done():
		require.FailNow(r.t, "the server is not done with its client")
		return Served{}
	}
}

func (r *rig) run(test perf.Test, conn rnic.ConnParam) (perf.Result, error) {
	return Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: test, Conn: conn,
		ServerFirst: time.Millisecond})
}
