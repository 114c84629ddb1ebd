package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every policy serves; one that has the device wake it, on a TAP of ours and on DPDK's.
func TestIdlePolicies(t *testing.T) {
	for _, idle := range idleNames {
		t.Run(idle, func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.serving(t, "--region", "16MiB", "--idle", idle)
			f := randomFile(t, 3<<20)
			ns.put(t, f)
			server.Expect(t, 1, "^sha256 +"+f.sum+"$")
			ns.stop(t, server)
		})
	}
}

// A server on net_tap that sleeps until it is interrupted; the driver's statistics are among its
// counters, and an interface that is deleted ends it.
func TestDPDKDaemonsDevice(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	needDPDK(t)
	ns := newNamespace(t)
	var server *process
	withEALMemory(t, func() *process {
		server = ns.rnicd(t, "serve", "--pmd", "dpdk", "--region", "16MiB", "--idle", "interrupt",
			"--counters", "--mac", "02:00:0a:09:00:01")
		server.Await(t, 1, "^ready ")
		return server
	})
	ns.Run(t, "ip", "addr", "add", kernelHost+"/24", "dev", "rnic0")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	f := randomFile(t, 3<<20)
	ns.put(t, f)
	server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	ns.Run(t, "ip", "link", "set", "rnic0", "down")
	server.Expect(t, 1, "^link +down$")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	server.Expect(t, 1, "^link +up, 10000 Mbit/s$")
	ns.Run(t, "ip", "link", "del", "rnic0")
	require.Equal(t, 1, server.Wait(t), "%s", server)
	require.Len(t, server.Lines("^rnicd: dpdk: the device is gone: net_tap0"), 1, "%s", server)
	require.NotEmpty(t, server.Lines("^ +xstats/rx_good_packets [0-9]+$"), "%s", server)
}
