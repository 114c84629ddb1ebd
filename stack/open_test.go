package stack

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
)

// closing is a port that tells of its end, with several queues where it is to have some.
type closing struct {
	pmd.Port
	queues, opened, closed int
	refuse                 error // of Open
}

func (c *closing) Caps() pmd.Caps {
	caps := c.Port.Caps()
	caps.Queues = max(caps.Queues, c.queues)
	return caps
}

func (c *closing) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if c.refuse != nil {
		return nil, c.refuse
	}
	if c.opened++; i > 0 { // the wire has one
		return idleQueue{}, nil
	}
	return c.Port.Open(i, pool)
}

func (c *closing) Close() error { c.closed++; return c.Port.Close() }

// watched is a port whose link comes up when up is called.
type watched struct {
	closing
	up   func()
	fail error
}

func (w *watched) WatchLink(up func()) error { w.up = up; return w.fail }

// A link that comes up is told to the Pollers; one that cannot be watched is an error.
func TestOpenWatchesTheLink(t *testing.T) {
	cfg := Config{Addr: netip.MustParsePrefix("10.0.0.1/24"), NoDAD: true}
	port := &watched{closing: closing{Port: cable(t).Port(0)}, fail: errors.New("no netlink")}
	require.ErrorContains(t, errOf(Open(port, cfg)), "stack: open wire0: no netlink")
	require.Equal(t, 1, port.closed)

	port = &watched{closing: closing{Port: cable(t).Port(0), queues: 2}}
	h := must(Open(port, cfg))(t)
	port.up()
	for _, p := range h.Pollers {
		n := must(p.Counters(t.Context()))(t)
		require.EqualValues(t, 1, n.LinkUps)
	}
	require.NoError(t, h.Close())
	port.up() // comes too late
}

type idleQueue struct{}

func (idleQueue) Rx([]mem.Buf) int       { return 0 }
func (idleQueue) Tx(bufs []mem.Buf) int  { return len(bufs) }
func (idleQueue) Counters() pmd.Counters { return pmd.Counters{} }

func cable(t *testing.T) *wire.Link {
	return must(wire.New(wire.Config{}))(t)
}

// A Host has a running Poller on each queue, and one Close ends it all.
func TestOpen(t *testing.T) {
	for _, queues := range []int{1, 3} {
		port := &closing{Port: cable(t).Port(0), queues: queues}
		h := must(Open(port, Config{Addr: netip.MustParsePrefix("10.0.0.1/24"), NoDAD: true}))(t)
		require.Len(t, h.Pollers, queues)
		require.Equal(t, queues, port.opened)
		for _, p := range h.Pollers {
			require.NoError(t, p.AwaitAddrs(t.Context()))
			require.Equal(t, port.Name(), p.Name())
			require.Equal(t, -1, p.cfg.Core)
			require.Equal(t, queues > 1, p.cfg.Group != nil)
			require.NotZero(t, p.Turns())
		}
		require.NoError(t, h.Close())
		require.NoError(t, h.Close())
		require.Equal(t, 1, port.closed)
		for _, p := range h.Pollers {
			<-p.Done()
		}
	}
}

// What a Poller cannot have ends all of it, the port too.
func TestOpenFails(t *testing.T) {
	addr := netip.MustParsePrefix("10.0.0.1/24")
	refused, small := errors.New("refused"), hugepages.Heap(4096)
	for want, tc := range map[string]struct {
		cfg    Config
		refuse error
	}{
		`stack: open wire0: stack: poller "wire0": address`: {Config{}, nil},
		"stack: open wire0: MTU -1: want 1 to 65535":        {Config{Addr: addr, MTU: -1}, nil},
		"open wire0: ConnsMax -1: want 1 to 1048576":        {Config{Addr: addr, ConnsMax: -1}, nil},
		"core 1022 is not available":                        {Config{Addr: addr, Core: 1022}, nil},
		"refused":                                           {Config{Addr: addr}, refused},
		"mem: pool of 8192":                                 {Config{Addr: addr, Arena: small}, nil},
	} {
		port := &closing{Port: cable(t).Port(0), refuse: tc.refuse}
		require.ErrorContains(t, errOf(Open(port, tc.cfg)), want)
		require.Equal(t, 1, port.closed, want)
	}
	require.ErrorContains(t, errOf(Open(nil, Config{Addr: addr})), "no port; want one of pmd/tap")
}

// Open's pools hold what the MTU and the connections need, and an arena of MemoryBytes suffices,
// wherever its next octet is.
func TestOpenMemory(t *testing.T) {
	addr := netip.MustParsePrefix("10.0.0.1/24")
	for _, tc := range []struct {
		cfg          Config
		bufs, stride int
	}{
		{Config{}, 8192, 2176},
		{Config{ConnsMax: 10_000}, 80_000, 2176},
		{Config{MTU: 9000, ConnsMax: 1}, 8192, 9216},
	} {
		pc := tc.cfg.poolConfig()
		require.Equal(t, tc.bufs, pc.Bufs)
		require.Equal(t, tc.stride, pc.Stride)
	}
	const queues = 2
	cfg := Config{Addr: addr, NoDAD: true}
	cfg.Arena = hugepages.Heap(int(cfg.MemoryBytes(queues)) + 64)
	must(cfg.Arena.Carve(64, 64))(t)
	h := must(Open(&closing{Port: cable(t).Port(0), queues: queues}, cfg))(t)
	require.Equal(t, 8192, h.Pollers[1].Pool().Size())
	require.NoError(t, h.Close())
}

// With a Core each Poller has one of its own: from there on, CPU 0 included.
func TestOpenPins(t *testing.T) {
	core := anyCore(t)
	h, err := Open(cable(t).Port(0), Config{Addr: netip.MustParsePrefix("10.0.0.1/24"), NoDAD: true,
		Core: OnCPU(core)})
	require.NoError(t, err)
	require.Equal(t, core, h.Pollers[0].cfg.Core)
	require.NoError(t, h.Close())
}
