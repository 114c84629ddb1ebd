// Package testnic makes pairs of Adapters for tests of the packages above rnic, over either
// transport.
package testnic

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

const patience = 30 * time.Second

// Over runs f over kernel sockets and over our TCP.
func Over(t *testing.T, f func(t *testing.T, devs [2]*rnic.Adapter)) {
	t.Run("sockets", func(t *testing.T) { f(t, Sockets(t)) })
	t.Run("wire", func(t *testing.T) { f(t, Wired(t)) })
}

// Sockets are two Adapters over kernel sockets.
func Sockets(t testing.TB) (devs [2]*rnic.Adapter) {
	for i := range devs {
		devs[i] = Open(t, rnic.Config{})
	}
	return devs
}

// Wired are two Adapters over Pollers that run, back to back in memory.
func Wired(t testing.TB) (devs [2]*rnic.Adapter) {
	link, err := wire.New(wire.Config{MTU: 1500})
	require.NoError(t, err)
	var pollers [2]*stack.Poller
	for i := range pollers {
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24)
		pollers[i] = testhost.NewPoller(t, link.Port(i), stack.Config{
			Addr: addr, MTU: 1500, Pool: testhost.NewPool(t, 2048, 1500), ConnsMax: 64,
			Idle: stack.IdleAdaptive,
		})
	}
	testhost.Run(t, pollers[:]...)
	for i := range devs {
		devs[i] = Open(t, rnic.Config{Pollers: pollers[i : i+1]})
	}
	return devs
}

// Open makes an Adapter that is closed with the test, which has taken all registered memory back by
// then.
func Open(t testing.TB, cfg rnic.Config) *rnic.Adapter {
	dev, err := rnic.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, dev.Close(ctx))
		require.Zero(t, dev.Regions(), "regions that were not deregistered")
	})
	return dev
}

// Dialable is where a Listener is found that listens on all addresses of this host.
func Dialable(a netip.AddrPort) string {
	if a.Addr().IsUnspecified() {
		a = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), a.Port())
	}
	return a.String()
}

// Serve has handle take the requests that come to a Listener of dev's, each with a context that is
// Waiting, and returns where a client finds it. With the test, or when ctx ends, it ends; the test
// waits for what is being handled.
func Serve(
	ctx context.Context, t testing.TB, dev *rnic.Adapter, waits chan<- struct{},
	handle func(context.Context, *rnic.ConnRequest),
) (addr string) {
	t.Helper()
	l, err := dev.Listen(ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- l.Serve(ctx, func(ctx context.Context, req *rnic.ConnRequest) {
			handle(Waiting(ctx, waits), req)
		})
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
		l.Close()
	})
	return Dialable(l.Addr())
}

// Waiting is ctx, and tells when its end is first waited for, as it is beside anything else.
func Waiting(ctx context.Context, waits chan<- struct{}) context.Context {
	return &waiting{ctx, sync.OnceFunc(func() { waits <- struct{}{} })}
}

type waiting struct {
	context.Context
	tell func()
}

func (w *waiting) Done() <-chan struct{} {
	w.tell()
	return w.Context.Done()
}

// Next receives what a server says of the next client that it has served.
func Next[T any](ctx context.Context, t testing.TB, served <-chan T) (next T) {
	t.Helper()
	select {
	case next = <-served:
	case <-ctx.Done():
		require.FailNow(t, "the server says nothing")
	}
	return next
}
