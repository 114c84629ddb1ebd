package bench

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/internal/vswitch"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

// sharedPool is a pool in an arena that a client of memif lends.
func sharedPool(t testing.TB, mtu int) (*hugepages.Arena, *mem.Pool) {
	t.Helper()
	cfg := testhost.PoolConfig(scaleBufs, mtu)
	arena, err := hugepages.New(
		hugepages.Config{Bytes: int64(cfg.Bytes()) + 4096, Node: hugepages.AnyNode, Memfd: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	pool := must(mem.NewPool(arena, cfg))(t)
	return arena, pool
}

// attach is a client of memif, once it is attached. The server is closed first: a client waits for
// a second until the queues of its peer have left its memory, and nobody turns them any more.
func attach(t testing.TB, server io.Closer, cfg memif.Config) *memif.Port {
	t.Helper()
	p := must(memif.Dial(cfg))(t)
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.NoError(t, p.Close())
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, p.AwaitLink(ctx, true))
	return p
}

// overMemif is two hosts back to back: the one that writes lends its Bufs.
func overMemif(t testing.TB, mtu int) *together {
	socket := filepath.Join(t.TempDir(), "memif.sock")
	l := must(memif.Listen(memif.ListenConfig{Socket: socket}))(t)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	server := must(l.Bind(memif.BindConfig{MTU: mtu}))(t)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	c := cable{mtu: mtu}
	pools := cablePools(t, c)
	arena, pool := sharedPool(t, mtu)
	pools[1] = pool
	client := attach(t, server, memif.Config{Socket: socket, MTU: mtu, Arena: arena})
	return onPorts(t, c, [2]pmd.Port{server, client}, pools)
}

// switched are the ports of a switch's programs, whose core is turned by turn.
func switched(t testing.TB, programs, mtu int) (ports []pmd.Port, pools []*mem.Pool,
	cfg vswitch.Config, turn func() int) {
	socket := filepath.Join(t.TempDir(), "switch.sock")
	for i := range programs {
		cfg.Programs = append(cfg.Programs, vswitch.Program{
			Name: fmt.Sprint("host", i), Socket: socket, ID: uint32(i), MAC: [6]byte{2, 5: byte(i + 1)},
			MTU: mtu, Uplink: vswitch.NoUplink,
			Addrs: vswitch.AddrsOf(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)})),
		})
	}
	cfg.Arena = newArena(t, cfg.MemoryBytes(mtu))
	sw := must(vswitch.New(cfg))(t)
	t.Cleanup(func() { require.NoError(t, sw.Close()) })
	for i := range programs {
		arena, pool := sharedPool(t, mtu)
		pools = append(pools, pool)
		ports = append(ports, attach(t, sw, memif.Config{Socket: socket, ID: uint32(i), MTU: mtu,
			Arena: arena, MAC: cfg.Programs[i].MAC}))
	}
	began := time.Now()
	core := sw.Cores()[0]
	turn = func() int { return core.Turn(int64(time.Since(began)) + 1) }
	return ports, pools, cfg, turn
}

// overSwitch is two programs of a switch.
func overSwitch(t testing.TB, mtu int) (g *together, turn func() int) {
	ports, pools, _, turn := switched(t, 2, mtu)
	g = onPorts(t, cable{mtu: mtu, between: turn}, [2]pmd.Port(ports), [2]*mem.Pool(pools))
	return g, turn
}

// switchPart is bulk Write through a switch: with all of it on one core, what an octet costs;
// with the switch on the core of the receiver, what there is where two cores are all.
func switchPart(y *yardstick) {
	for _, mtu := range []int{1500, 9000} {
		for _, cores := range []struct{ name, all string }{{"one core", "one core for all"},
			{"two cores", "two cores for all three"}} {
			sw, turn := overSwitch(y, mtu)
			over := func(what string, g *together, turn func() int) *yard.Contender {
				return writingOn(y, fmt.Sprintf("Write over %s, %s, MTU %d", what, cores.name, mtu), g,
					writeWay{between: turn, oneCore: cores.name == "one core"})
			}
			s := y.take(
				// it copies, and has no offloads, as memif
				over("wire", newCable(y, cable{mtu: mtu, bare: true}), nil),
				over("memif", overMemif(y, mtu), nil), over("the switch", sw, turn))
			y.row(fmt.Sprintf("Write over memif to wire, %s, MTU %d", cores.name, mtu), "x", atLeast(0.9),
				yard.Ratio(s[1], s[0]), "")
			y.row(fmt.Sprintf("Write through the switch to wire, %s, MTU %d", cores.all, mtu), "x",
				atLeast(0.6), yard.Ratio(s[2], s[0]), "")
			for _, x := range s {
				y.row(x.Name, "Gbit/s", yard.Goal{}, yard.Rate(x, 8e-9), "")
			}
		}
		runtime.GC()
	}
}
