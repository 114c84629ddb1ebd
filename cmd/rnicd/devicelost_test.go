package main

import (
	"path/filepath"
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
	ns.Run(t, "ip", "link", "add", "enp1s0", "type", "veth", "peer", "name", "peer0")
	for _, dev := range []string{"enp1s0", "peer0"} {
		ns.Run(t, "sysctl", "-qw", "net.ipv6.conf."+dev+".disable_ipv6=1")
		ns.Run(t, "ip", "link", "set", dev, "up")
	}
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

// A switch whose uplink's device was deleted ends, with one line that says which.
func TestUplinkDeleted(t *testing.T) {
	ns := newNamespace(t)
	dir := t.TempDir()
	s := ns.rnicd(t, "switch", "--config", configured(t, `
[switch]
socket = "`+filepath.Join(dir, "switch.sock")+`"

[[uplink]]
name = "outside"
driver = "tap"
device = "rnic0"

[[program]]
name = "one"
addresses = ["10.9.0.1"]
`))
	s.Expect(t, 1, "msg=ready ")
	ns.Run(t, "ip", "link", "delete", "rnic0")
	require.Equal(t, 1, s.Wait(t), "%s", s)
	last := s.Lines("^rnicd: ")
	require.Len(t, last, 1, "%s", s)
	require.Regexp(t, "^rnicd: uplink outside: tap: rnic0: the device is gone: ", last[0])
}
