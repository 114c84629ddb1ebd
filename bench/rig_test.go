package bench

import (
	"cmp"
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// host is one Poller with an Adapter on it, on a goroutine of its own.
type host struct {
	dev    *rnic.Adapter
	poller *stack.Poller
	app    func() int // runs to completion in each Turn; Poller's goroutine
}

func (h *host) turned() int {
	if h.app == nil {
		return 0
	}
	return h.app()
}

// rig is two hosts on a wire.
func rig(b *testing.B, mtu int, offload bool) (server, client *host) {
	b.Helper()
	link := newLink(b, wire.Config{MTU: mtu, ChecksumOffload: offload})
	return newHost(b, link.Port(0), "10.9.0.1/24", mtu), newHost(b, link.Port(1), "10.9.0.2/24", mtu)
}

func newLink(b testing.TB, cfg wire.Config) *wire.Link {
	b.Helper()
	memory := must(newArena(b, int64(cfg.MemoryBytes())+4096).Carve(cfg.MemoryBytes(), 4096))(b)
	cfg.Memory = memory
	return must(wire.New(cfg))(b)
}

func newArena(b testing.TB, n int64) *hugepages.Arena {
	a := must(hugepages.New(hugepages.Config{Bytes: n, Node: hugepages.AnyNode}))(b)
	if f := a.Fallback(); f != "" {
		b.Log(f)
	}
	b.Cleanup(func() { require.NoError(b, a.Close()) })
	return a
}

func newHost(b *testing.B, port pmd.Port, addr string, mtu int) *host {
	h := quietHost(b, port, addr, mtu)
	testhost.Run(b, h.poller)
	return h
}

// faultyHost is a host whose queue can do harm: none at first.
func faultyHost(b *testing.B, port pmd.Port, addr string, mtu int, faulty **fault.Queue) *host {
	b.Helper()
	h := hostWith(b, port, addr, mtu, func(q pmd.Queue, pool *mem.Pool) pmd.Queue {
		var err error
		*faulty, err = fault.Wrap(q, pool, fault.Spec{}, func() int64 { return time.Now().UnixNano() })
		require.NoError(b, err)
		return *faulty
	})
	testhost.Run(b, h.poller)
	return h
}

// quietHost is a host whose Poller is not turned yet.
func quietHost(b testing.TB, port pmd.Port, addr string, mtu int) *host {
	b.Helper()
	return hostWith(b, port, addr, mtu, func(q pmd.Queue, _ *mem.Pool) pmd.Queue { return q })
}

// hostWith is a quietHost with its queue wrapped.
func hostWith(b testing.TB, port pmd.Port, addr string, mtu int,
	wrap func(pmd.Queue, *mem.Pool) pmd.Queue) *host {
	b.Helper()
	return hostIn(b, newArena(b, int64(testhost.PoolConfig(4096, mtu).Bytes())), port, addr, mtu, wrap)
}

// hostIn is a host whose packets lie in arena.
func hostIn(b testing.TB, arena *hugepages.Arena, port pmd.Port, addr string, mtu int,
	wrap func(pmd.Queue, *mem.Pool) pmd.Queue) *host {
	b.Helper()
	bufs := testhost.PoolConfig(4096, mtu)
	pool := must(mem.NewPool(arena, bufs))(b)
	return hostOn(b, port, addr, pool, hostConfig{mtu: mtu, wrap: wrap})
}

// hostConfig is what hosts differ in.
type hostConfig struct {
	mtu    int
	wrap   func(pmd.Queue, *mem.Pool) pmd.Queue
	manual func()       // rnic.Config.Manual
	clock  func() int64 // stack.Config.Clock
	conns  int          // 0: a few
}

// hostOn is hostIn with a pool that is there.
func hostOn(b testing.TB, port pmd.Port, addr string, pool *mem.Pool, cfg hostConfig) *host {
	b.Helper()
	h := &host{}
	queue, err := port.Open(0, pool)
	require.NoError(b, err)
	h.poller = testhost.NewPoller(b, port, stack.Config{
		Queue: cfg.wrap(queue, pool), Pool: pool, Addr: netip.MustParsePrefix(addr), MTU: cfg.mtu,
		ConnsMax: cmp.Or(cfg.conns, 8), TCP: tcp.Config{ReceiveWindow: 1 << 20},
		OnTurn: h.turned, Clock: cfg.clock,
	})
	h.dev, err = rnic.Open(rnic.Config{Pollers: []*stack.Poller{h.poller}, Manual: cfg.manual,
		RegionsMax: max(rnic.RegionsMaxDefault, 4*cfg.conns)})
	require.NoError(b, err)
	return h
}

// end is one end of a connection.
type end struct {
	qp     *rnic.QueuePair
	conn   rnic.ConnParam
	cq     *rnic.CompletionQueue
	region *rnic.MemoryRegion
}

// opts are what a QueuePair is, and how it connects.
type opts struct {
	rnic.QPOptions
	rnic.ConnParam
}

func newEnd(b testing.TB, h *host, regionBytes int, opt opts) *end {
	e := &end{conn: opt.ConnParam}
	var err error
	e.cq, err = h.dev.CreateCQ(max(1024, opt.SendDepth+opt.RecvDepth))
	require.NoError(b, err)
	opt.PD, opt.SendCQ, opt.RecvCQ = h.dev.AllocPD(), cmp.Or(opt.SendCQ, e.cq), e.cq
	e.qp, err = h.dev.CreateQP(opt.QPOptions)
	require.NoError(b, err)
	e.region, err = opt.PD.Register(newArena(b, int64(regionBytes)).Bytes()[:regionBytes],
		rnic.RemoteWrite|rnic.LocalWrite)
	require.NoError(b, err)
	b.Cleanup(func() { // before the memory goes
		e.qp.Abort()
		<-e.qp.Done()
		e.region.Deregister()
	})
	return e
}

// connect makes a connection between two hosts with a region of regionBytes at each end.
func connect(b testing.TB, server, client *host, regionBytes int, opt opts) (s, c *end) {
	b.Helper()
	s, c = newEnd(b, server, regionBytes, opt), newEnd(b, client, regionBytes, opt)
	join(b, server, s, func(ctx context.Context) error {
		return c.qp.Connect(ctx, "10.9.0.1:7174", c.conn)
	})
	return s, c
}

// join has s accept what dial connects to server.
func join(b testing.TB, server *host, s *end, dial func(context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l := must(server.dev.Listen(ctx, ":7174", rnic.ListenOptions{}))(b)
	b.Cleanup(func() { l.Close() })
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			err = req.Accept(ctx, s.qp, s.conn)
		}
		accepted <- err
	}()
	require.NoError(b, dial(ctx))
	require.NoError(b, <-accepted)
}

// reap waits until n send-side completions have come.
func (e *end) reap(ctx context.Context, b *testing.B, n int) {
	var cs [64]rnic.Completion
	for n > 0 {
		got := e.cq.Poll(cs[:min(n, len(cs))])
		for _, c := range cs[:got] {
			if c.Status != rnic.Success {
				<-e.qp.Done()
				b.Fatalf("%v %v: %v", c.Op, c.Status, e.qp.Err())
			}
		}
		if n -= got; got == 0 {
			require.NoError(b, e.cq.Wait(ctx))
		}
	}
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
