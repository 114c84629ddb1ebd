package main

import (
	"testing"
)

// On a veth the kernel leaves TCP's checksums to the other end: nobody can connect. The daemon says
// so when it starts and when such segments come, doctor says so too, with the command that mends
// it; after that all is well.
func TestChecksumsLeftToAVeth(t *testing.T) {
	needDPDK(t)
	ns := newNamespace(t)
	ns.Run(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "peer1")
	for _, dev := range []string{"eth1", "peer1"} {
		ns.Run(t, "sysctl", "-qw", "net.ipv6.conf."+dev+".disable_ipv6=1")
		ns.Run(t, "ip", "link", "set", dev, "up")
	}
	ns.Run(t, "ip", "address", "add", "10.9.0.254/24", "dev", "peer1")
	path := configured(t, `
[[port]]
name = "nic0"
driver = "dpdk"
device = "net_af_packet0,iface=eth1"
addresses = ["10.9.0.1/24"]

[[service]]
name = "scratch"
type = "region"
size = "4MiB"
`)
	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, `level=WARN msg="TCP may not arrive" port=nic0 why="eth1 is an end of a veth, `+
		`.*peer1.*" fix="ethtool -K peer1 tx off"`)
	server.Expect(t, 1, "msg=ready ")
	doctor := ns.rnicd(t, "doctor", "--config", path)
	doctor.Wait(t)
	doctor.Expect(t, 1, "^lack  checksums +port nic0: eth1 is an end of a veth, ")
	doctor.Expect(t, 1, "^ +ethtool -K peer1 tx off$")

	f := randomFile(t, 1<<20)
	ns.fails(t, "put --timeout 3s "+f.path+" 10.9.0.1", "")
	server.Expect(t, 1, `level=WARN msg="segments came without checksums: .*ethtool -K DEVICE tx off" `+
		`port=nic0 segments=[1-9]`)

	ns.NoOffload(t, "peer1")
	ns.succeeds(t, "put --timeout 60s "+f.path+" 10.9.0.1")
	doctor = ns.rnicd(t, "doctor", "--config", path)
	doctor.Wait(t)
	doctor.Expect(t, 1, "^ok +checksums ")
}
