package perftest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

const patience = 30 * time.Second

// rig is a Server and what is needed for clients of it.
type rig struct {
	t    *testing.T
	ctx  context.Context
	devs [2]*rnic.Adapter // client, server
	addr string
	gone chan Served
}

// overBoth runs a test over kernel sockets and over our TCP.
func overBoth(t *testing.T, cfg ServerConfig, f func(r *rig)) {
	t.Run("sockets", func(t *testing.T) { f(newRig(t, sockets(t), cfg)) })
	t.Run("wire", func(t *testing.T) { f(newRig(t, wired(t), cfg)) })
}

func newRig(t *testing.T, devs [2]*rnic.Adapter, cfg ServerConfig) *rig {
	t.Helper()
	r := &rig{t: t, devs: devs, gone: make(chan Served, 16)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cfg.Adapter, cfg.Done = devs[1], func(s Served) { r.gone <- s }
	s, err := NewServer(cfg)
	require.NoError(t, err)
	l, err := devs[1].Listen(r.ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	r.addr = dialable(l.Addr())
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(r.ctx)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
		l.Close()
	})
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

func (r *rig) run(test perf.Test, opt rnic.QPOptions) (perf.Result, error) {
	return Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: test, QP: opt})
}

func sockets(t *testing.T) (devs [2]*rnic.Adapter) {
	for i := range devs {
		devs[i] = open(t, rnic.Config{})
	}
	return devs
}

// wired are Adapters over two Pollers, back to back in memory.
func wired(t *testing.T) (devs [2]*rnic.Adapter) {
	link, err := wire.New(wire.Config{MTU: 1500})
	require.NoError(t, err)
	var pollers [2]*stack.Poller
	for i := range pollers {
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24)
		pollers[i] = testhost.NewPoller(t, link.Port(i), stack.Config{
			Addr: addr, MTU: 1500, Pool: testhost.NewPool(t, 2048, 1500), ConnsMax: 64, Idle: stack.IdleAdaptive,
		})
	}
	testhost.Run(t, pollers[:]...)
	for i := range devs {
		devs[i] = open(t, rnic.Config{Pollers: pollers[i : i+1]})
	}
	return devs
}

func open(t *testing.T, cfg rnic.Config) *rnic.Adapter {
	dev, err := rnic.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, dev.Close(ctx))
	})
	return dev
}

// dialable is where a Listener is found that listens on all addresses of this host.
func dialable(a netip.AddrPort) string {
	host := a.Addr()
	if host.IsUnspecified() {
		host = netip.MustParseAddr("127.0.0.1")
	}
	return netip.AddrPortFrom(host, a.Port()).String()
}
