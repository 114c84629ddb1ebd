package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// A second process on one device is refused, whatever its command, driver and number of queues, and
// the first serves on; after a kill the device is free.
func TestOneProcessOnADevice(t *testing.T) {
	ns := newNamespace(t)
	first := ns.serving(t, "--queues", "2")
	f := randomFile(t, 100_000)
	tap := "[[uplink]]\nname = \"rnic0\"\n[[program]]\nname = \"one\"\nsocket = \"@" + t.Name() +
		"\"\naddresses = [\"10.9.0.2\"]\n"
	one := ns.exits(t, 1, "serve", "--region", "1MiB")
	require.Equal(t, []string{fmt.Sprintf("rnicd: rnic0: process %d has this device: frames would "+
		"reach one of both by chance; name another device, or end that process", first.PID())},
		errorLines(one))
	for _, args := range [][]string{
		{"serve", "--queues", "2", "--addr", "10.9.0.3/24"},
		{"stream", "sink", "--addr", "10.9.0.3/24", "--queues", "3"},
		{"serve", "--config", configured(t, "[[port]]\nname = \"rnic0\"\nqueues = 2\naddresses = "+
			"[\"10.9.0.3/24\"]\n")},
		{"switch", "--config", configured(t, tap)},
	} {
		second := ns.rnicd(t, args...)
		require.Equal(t, 1, second.Wait(t), "%v: %s", args, second)
		require.Regexp(t, `(?m)^rnicd: .*rnic0: process \d+ has this device`, second.String())
		ns.put(t, f)
	}
	first.Signal(t, syscall.SIGKILL)
	first.Wait(t)
	ns.stop(t, ns.serving(t, "--queues", "2"))
}

// So is one on a network interface that DPDK's drivers would share.
func TestOneProcessOnAnInterface(t *testing.T) {
	needDPDK(t)
	ns := newNamespace(t)
	ns.veth(t, "enp1s0", "other")
	serve := func(addr, dev string) *netlab.Process {
		return ns.rnicd(t, "serve", "--pmd", "dpdk", "--dev", dev, "--addr", addr, "--no-dad", "--mtu",
			"1400", "--region", "1MiB")
	}
	first := serve("10.9.0.1/24", "net_af_packet0,iface=enp1s0")
	first.Expect(t, 1, "^ready ")
	for _, dev := range []string{"net_af_packet0,iface=enp1s0", "net_af_xdp0,iface=enp1s0"} {
		second := serve("10.9.0.2/24", dev)
		require.Equal(t, 1, second.Wait(t), "%s", second)
		require.Regexp(t, `(?m)^rnicd: enp1s0: process \d+ has this device`, second.String())
	}
	first.Signal(t, syscall.SIGTERM)
	require.Equal(t, 0, first.Wait(t))
}
