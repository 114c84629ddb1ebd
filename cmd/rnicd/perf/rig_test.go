package perf

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

const patience = 30 * time.Second

// pair is two Ends of one connection, each with memory of 2*areaMax octets and a word behind, all known to the peer.
type pair struct {
	t    *testing.T
	ctx  context.Context
	ends [2]*End // client, server
}

const (
	areaMax  = 1 << 16
	creditAt = 2 * areaMax
	memory   = 2*areaMax + 8
	depth    = 64
)

// overBoth runs a test over kernel sockets and over our TCP.
func overBoth(t *testing.T, f func(t *testing.T, devs [2]*rnic.Adapter)) {
	t.Run("sockets", func(t *testing.T) { f(t, sockets(t)) })
	t.Run("wire", func(t *testing.T) { f(t, wired(t)) })
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

// connect makes a pair, prepared for a test.
func connect(t *testing.T, devs [2]*rnic.Adapter, test Test) *pair {
	t.Helper()
	p := &pair{t: t}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	for i, dev := range devs {
		p.ends[i] = newEnd(t, dev)
		require.NoError(t, p.ends[i].Prepare(test, i == 1))
	}
	l, err := devs[1].Listen(p.ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(p.ctx)
		if err == nil {
			err = req.Accept(p.ctx, p.ends[1].QP, nil)
		}
		accepted <- err
	}()
	require.NoError(t, p.ends[0].QP.Connect(p.ctx, dialable(l.Addr()), nil))
	require.NoError(t, <-accepted)
	for i, e := range p.ends {
		peer := p.ends[1-i]
		e.RemoteSTag, e.RemoteOffset = peer.Local.STag(), uint64(peer.RecvAt)
		if test.Op == Atomic {
			e.RemoteOffset = 0
		}
	}
	t.Cleanup(func() {
		for _, e := range p.ends {
			e.QP.Abort()
			<-e.QP.Done()
			e.Local.Deregister()
		}
	})
	return p
}

// dialable is where a Listener is found that listens on all addresses of this host.
func dialable(a netip.AddrPort) string {
	if a.Addr().IsUnspecified() {
		a = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), a.Port())
	}
	return a.String()
}

func newEnd(t *testing.T, dev *rnic.Adapter) *End {
	t.Helper()
	e := &End{RecvAt: areaMax}
	var err error
	e.SendCQ, err = dev.CreateCQ(4 * depth)
	require.NoError(t, err)
	e.RecvCQ, err = dev.CreateCQ(4 * depth)
	require.NoError(t, err)
	pd := dev.AllocPD()
	e.QP, err = dev.CreateQP(rnic.QPOptions{
		PD: pd, SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, SendDepth: 2 * depth, RecvDepth: 2 * depth,
		Dialect: rnic.RFC6581, IRD: 16, ORD: 16,
	})
	require.NoError(t, err)
	arena, err := hugepages.New(hugepages.Config{Bytes: memory, Page: hugepages.Normal, Node: hugepages.AnyNode})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	e.Local, err = pd.RegisterWith(arena.Bytes()[:memory], rnic.RegisterOptions{
		Access: rnic.LocalWrite | rnic.RemoteRead | rnic.RemoteWrite, For: e.QP,
	})
	require.NoError(t, err)
	return e
}

// withCredit adds flow control of Sends.
func (p *pair) withCredit() *pair {
	client, server := p.ends[0], p.ends[1]
	client.Credit = &Credit{Local: creditAt}
	server.Credit = &Credit{Local: creditAt, RemoteSTag: client.Local.STag(), RemoteOffset: creditAt}
	return p
}

// serve runs Serve; the function waits for what it returned.
func (p *pair) serve(test Test) func() error {
	ended := make(chan error, 1)
	go func() { ended <- p.ends[1].Serve(p.ctx, test) }()
	return func() error { return <-ended }
}
