package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/rnic"
)

// stationed is a port with a MAC of ours: net_ring's have none, and take every frame.
type stationed struct {
	pmd.Port
	mac [6]byte
}

func (p stationed) MAC() [6]byte { return p.mac }

// ringHost is a host on one end of a RingPair.
func ringHost(b *testing.B, vdev, addr string, last byte) *host {
	b.Helper()
	const mtu = 1500
	arena := newArena(b, int64(testhost.PoolConfig(4096, mtu).Bytes())+2<<20)
	p := must(dpdk.Open(dpdk.Config{Vdev: vdev, Arena: arena, MTU: mtu, NoOffload: true}))(b)
	b.Cleanup(func() { require.NoError(b, p.Close()) })
	h := hostIn(b, arena, stationed{p, [6]byte{2, 0, 0, 0, 0, last}}, addr, mtu,
		func(q pmd.Queue, _ *mem.Pool) pmd.Queue { return q })
	testhost.Run(b, h.poller)
	return h
}

// BenchmarkWriteRing is BenchmarkWrite at MTU 1500 over a pair of DPDK's software rings, beside
// pmd/wire; neither has offloads.
func BenchmarkWriteRing(b *testing.B) {
	opt := opts{rnic.QPOptions{SendDepth: 64}, rnic.ConnParam{NoMarkers: true}}
	b.Run("wire", func(b *testing.B) {
		server, client := rig(b, 1500, false)
		s, c := connect(b, server, client, writeRegion, opt)
		benchWrite(b, s, c)
	})
	b.Run("net_ring", func(b *testing.B) {
		if !dpdk.Built {
			skip.Missing(b, "built without DPDK")
		}
		require.NoError(b, dpdk.Init(nil))
		one, two, err := dpdk.RingPair("bench", 1024)
		require.NoError(b, err)
		s, c := connect(b, ringHost(b, one, "10.9.0.1/24", 1), ringHost(b, two, "10.9.0.2/24", 2),
			writeRegion, opt)
		benchWrite(b, s, c)
	})
}
