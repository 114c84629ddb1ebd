//go:build dpdk

package bench

import (
	"os"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

func init() { parts = append(parts, part{"dpdk", dpdkPart}) }

// dpdkPart is bulk Write over DPDK's net_ring beside pmd/wire.
func dpdkPart(y *yardstick) {
	const name = "Write over DPDK's net_ring to pmd/wire, MTU 1500"
	why := ""
	if y.dry || os.Geteuid() != 0 {
		why = "the EAL needs root and hugepages, and starts once in a process"
	} else if err := dpdk.Init(nil); err != nil {
		why = err.Error()
	}
	if why != "" {
		y.missing("x", atLeast(0.9), why, name)
		return
	}
	c := cable{mtu: 1500}
	a, b, err := dpdk.RingPair("yard", 2048)
	require.NoError(y, err)
	var ports [2]pmd.Port
	var pools [2]*mem.Pool
	bufs := testhost.PoolConfig(4096, 2048) // a whole mbuf
	for i, vdev := range []string{a, b} {
		arena := newArena(y, int64(bufs.Bytes())+1<<16)
		pools[i], err = mem.NewPool(arena, bufs)
		require.NoError(y, err)
		port := must(dpdk.Open(dpdk.Config{Vdev: vdev, Arena: arena, MTU: c.mtu}))(y)
		y.Cleanup(func() { require.NoError(y, port.Close()) })
		ports[i] = stationed{port, [6]byte{2, 0, 0, 0, 0, byte(i + 1)}}
	}
	s := y.take(writing(y, "Write beside net_ring", c, false),
		writingOn(y, "Write over net_ring", onPorts(y, c, ports, pools), writeWay{}))
	y.row(name, "x", atLeast(0.9), yard.Ratio(s[1], s[0]),
		"neither computes checksums; pmd/wire copies twice, net_ring once")
}
