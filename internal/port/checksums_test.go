package port

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// An end of a veth whose other end has its checksums left to it is found, and not after the mend;
// what is no veth, or another driver's, is not.
func TestChecksumsLeft(t *testing.T) {
	ns, other := netlab.New(t), netlab.New(t)
	netlab.VethWith(t, ns, netlab.Device{Name: "eth1"}, ns, netlab.Device{Name: "peer1"}, nil)
	netlab.VethWith(t, ns, netlab.Device{Name: "eth2"}, other, netlab.Device{Name: "peer2"}, nil)
	ns.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	left := func(driver, device string) (all []ChecksumsLeft) {
		t.Helper()
		d := must(Builtin().ByName(driver))(t)
		ns.Do(func() { all = (&Config{Driver: d, Device: device}).ChecksumsLeft() })
		return all
	}
	one := []ChecksumsLeft{{Device: "eth1", Peer: "peer1"}}
	require.Equal(t, one, left("dpdk", "net_af_packet0,iface=eth1,qpairs=2"))
	require.Equal(t, one, left("dpdk", "net_af_xdp0,iface=eth1"))
	require.Equal(t, "ethtool -K peer1 tx off", one[0].Fix())
	require.Equal(t, []ChecksumsLeft{{Device: "eth2"}}, left("dpdk", "net_af_packet0,iface=eth2"))
	for _, device := range []string{"net_af_packet0,iface=br0", "net_af_packet0,iface=none",
		"net_tap0,iface=eth1"} {
		require.Empty(t, left("dpdk", device), device)
	}
	require.Empty(t, left("tap", "eth1"))
	ns.NoOffload(t, "peer1")
	require.Empty(t, left("dpdk", "net_af_packet0,iface=eth1"))
}
