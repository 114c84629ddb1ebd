package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The interface under a port of DPDK's goes down and comes back: the daemon serves again. Deleted,
// the daemon ends and says why, once.
func TestInterfaceUnderDPDKFlaps(t *testing.T) {
	needDPDK(t)
	if testing.Short() { // make test-all; TestDeviceDeleted is in make test
		return
	}
	ns := newNamespace(t)
	ns.veth(t, "enp1s0", "peer0")
	server := ns.rnicd(t, "serve", "--config", configured(t, `
[[port]]
name = "nic0"
driver = "dpdk"
device = "net_af_packet0,iface=enp1s0"
addresses = ["10.9.0.1/24"]
mtu = 1400

[[service]]
name = "scratch"
type = "region"
size = "4MiB"
`))
	server.Expect(t, 1, "msg=ready ")
	f := randomFile(t, 1<<20)
	put := func() {
		t.Helper()
		ns.succeeds(t, "put --pmd dpdk --dev net_af_packet0,iface=peer0 --mtu 1400 --addr 10.9.0.2/24 "+
			"--dad quick --wait 60s --timeout 60s "+f.path+" 10.9.0.1")
	}
	put()
	ns.Run(t, "ip", "link", "set", "enp1s0", "down")
	ns.Run(t, "ip", "link", "set", "enp1s0", "up")
	put()
	ns.Run(t, "ip", "link", "delete", "enp1s0")
	require.Equal(t, 1, server.Wait(t), "%s", server)
	last := server.Lines("^rnicd: ")
	require.Len(t, last, 1, "%s", server)
	require.Regexp(
		t,
		`^rnicd: port "nic0": dpdk: the device is gone: net_af_packet0: its interface, number [0-9]+, was deleted$`, last[0])
}
