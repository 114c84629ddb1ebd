package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// linkFlags are options as a command line would give them.
func linkFlags(t *testing.T, args ...string) *nicOptions {
	o := &nicOptions{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(f)
	require.NoError(t, f.Parse(args))
	return o
}

func TestLinkFlags(t *testing.T) {
	for args, want := range map[string]bool{
		"":                                   true,
		"--dad full":                         false,
		"--pmd dpdk":                         true,
		"--pmd memif --socket x":             true,
		"--pmd memif --socket x --dad full":  false,
		"--pmd dpdk --dev net_tap1":          true,
		"--pmd dpdk --pci 0000:01:00.0":      false,
		"--pmd dpdk --dev net_af_packet0":    false,
		"--pmd dpdk --pci 0:1:0 --dad quick": true,
	} {
		cfg := must(linkFlags(t, strings.Fields(args)...).portConfig())(t)
		require.Equal(t, want, cfg.QuickDAD(), args)
	}
	for args, want := range map[string]string{
		"--dad banana":            `--dad "banana": want auto, quick or full`,
		"--dad quick --no-dad":    "--no-dad and --dad: give only one",
		"--mac banana":            `--mac "banana": want the address of one station, as 02:00:0a:09:00:01`,
		"--mac 01:00:0a:09:00:01": `--mac "01:00:0a:09:00:01": want the address of one station, as 02:00:0a:09:00:01`,
		"--mac 00:00:00:00:00:00": `--mac "00:00:00:00:00:00": want the address of one station, as 02:00:0a:09:00:01`,
		"--mac 02:00:0a:09:00:01": "",
		"--dad full":              "",
	} {
		if err := linkFlags(t, strings.Fields(args)...).check(); want == "" {
			require.NoError(t, err, args)
		} else {
			require.EqualError(t, err, want)
		}
	}
	cfg := must(linkFlags(t, "--mac", "02:00:0a:09:00:01").portConfig())(t)
	require.Equal(t, ",mac=02:00:0a:09:00:01", port.TAPMAC(&cfg))
}

// What becomes of a device is told in lines that begin with a word of their own.
func TestConditionsAreTold(t *testing.T) {
	var b bytes.Buffer
	c := conditions{newOutput(&b)}
	c.Conflict(netip.MustParseAddr("10.9.0.1"), inet.MAC{2, 5: 7}, false)
	c.Conflict(netip.MustParseAddr("fd09::1"), inet.MAC{2, 5: 8}, true)
	c.Full(7)
	c.Link(dpdk.Link{})
	c.Link(dpdk.Link{Up: true, FullDuplex: true, Mbps: 10_000})
	c.Stuck(1, true, dpdk.Link{})
	c.Stuck(1, false, dpdk.Link{})
	require.Equal(t, `conflict    10.9.0.1 is used by another host on the link, too, the one with MAC 02:00:00:00:00:07: take it from that host; we defend it
conflict    --addr fd09::1: another host on the link has this address, the one with MAC 02:00:00:00:00:08; choose another, or take it from that host; we do not use it any more
full        7 segments that open a connection were not answered: their address has as many as --peer-max allows
link        down
link        up, 10000 Mbit/s
stuck       queue 1 of the device has taken no frame for 5s; the link is down
stuck       queue 1 of the device takes frames again
`, b.String())
}

// The MAC is the same from start to start, and that which --mac gives.
func TestServeKeepsItsMAC(t *testing.T) {
	ns := newNamespace(t)
	mac := func(args ...string) string {
		server := ns.serving(t, args...)
		ns.Run(t, "ping", "-n", "-c", "1", "-W", "10", serverHost)
		words := strings.Fields(ns.Run(t, "ip", "neigh", "show", "to", serverHost))
		ns.stop(t, server)
		return words[4]
	}
	first := mac()
	require.Equal(t, first, mac())
	require.Equal(t, "02:00:0a:09:00:01", mac("--mac", "02:00:0a:09:00:01"))
}

// A daemon whose last address another host has when its TAP joins a bridge says so and ends; one
// that has a client defends it and serves on.
func TestServeOnABridgeWithConflicts(t *testing.T) {
	ns := newNamespace(t)
	ns.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	ns.Run(t, "ip", "link", "set", "br0", "up")
	other := netlab.New(t)
	netlab.Veth(t, ns.Namespace, netlab.Device{Name: "port0"}, other, netlab.Device{
		Name: "wire0", Addrs: []netip.Prefix{netip.MustParsePrefix(serverHost + "/24")},
	})
	ns.Run(t, "ip", "link", "set", "port0", "master", "br0")
	server := ns.rnicd(t, "serve", "--region", "1MiB")
	server.Expect(t, 1, "^ready ") // nobody else was there
	ns.Run(t, "ip", "link", "set", "rnic0", "master", "br0")
	require.Equal(t, 1, server.Wait(t), "%s", server)
	require.Len(t, server.Lines("^conflict    --addr 10.9.0.1: another host on the link has this "+
		"address, the one with MAC "), 1, "%s", server)
	require.Len(t, server.Lines("^rnicd: no address is left to serve on$"), 1, "%s", server)
}
