package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// The line of the device has the name that ip link shows, and the VLAN.
func TestDeviceLine(t *testing.T) {
	for want, o := range map[string]nicOptions{
		"name, MTU 1500, our address 10.9.0.1/24":         {pmd: "tap", dev: "name"},
		"name, MTU 1500, VLAN 7, our address 10.9.0.1/24": {pmd: "tap", dev: "name", vlan: 7},
		"rnic0 (name), MTU 1500, our address 10.9.0.1/24": {pmd: "dpdk", dev: "rnic0"},
		"name, MTU 1500, our address 10.9.0.1/24 ":        {pmd: "dpdk", dev: "net_af_packet0,iface=eth1"},
		"name, MTU 1500, our address 10.9.0.1/24  ":       {pmd: "dpdk", dev: "rnic0", pci: "0000:01:00.0"},
	} {
		o.mtu, o.addrs = 1500, []string{"10.9.0.1/24"}
		require.Equal(t, strings.TrimSpace(want), o.describe("name"))
	}
}

// What the flags say reaches the Poller.
func TestNICFlags(t *testing.T) {
	var o nicOptions
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(f)
	require.NoError(t, f.Parse([]string{
		"--addr", "192.0.2.1/24,2001:db8::1/64", "--addr", "198.51.100.1/24", "--gateway", "192.0.2.9",
		"--gateway", "2001:db8::9",
		"--vlan", "7", "--congestion", "dctcp", "--ecn", "--no-dad", "--mtu", "9000", "--core",
		"3", "--spin",
		"--rto-min", "5ms", "--pto-min", "100us", "--pacing",
	}))
	require.NoError(t, o.check())
	device := must(o.portConfig())(t)
	cfg := device.Stack(0)
	dctcp := must(tcp.CongestionByName("dctcp"))(t)
	require.Equal(t, stack.Config{
		Addr: netip.MustParsePrefix("192.0.2.1/24"),
		Addrs: []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64"),
			netip.MustParsePrefix("198.51.100.1/24")},
		Routes: []inet.Route{
			{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.9")},
			{Prefix: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("2001:db8::9")},
		},
		VLAN: 7, NoDAD: true, MTU: 9000, ConnsMax: connsMax, Core: 3, Idle: stack.IdleSpin,
		TCP: tcp.Config{ECN: tcp.ECNActive, Congestion: dctcp, RTOMinNs: 5_000_000, PTOMinNs: 100_000,
			Pacing: true},
	}, cfg)
}
