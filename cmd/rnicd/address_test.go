package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An address that another host on the link has is refused before anybody is told that the daemon is
// ready. The other host is the kernel, at the other end of a TAP that was there before.
func TestAddressTaken(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.Run(t, "ip", "tuntap", "add", "dev", "rnic0", "mode", "tap", "vnet_hdr")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	ns.Run(t, "ip", "addr", "add", "fd09::1/64", "dev", "rnic0", "nodad")
	ns.Run(t, "ip", "addr", "add", "10.9.0.254/24", "dev", "rnic0")
	_, mac, _ := strings.Cut(ns.Run(t, "ip", "-o", "link", "show", "rnic0"), "link/ether ")
	mac = mac[:len("02:00:00:00:00:00")]
	for _, command := range [][]string{{"serve", "--region", "1MiB"}, {"stream", "sink"}} {
		for addrs, taken := range map[string]string{"10.9.0.1/24,fd09::1/64": "fd09::1",
			"10.9.0.254/24": "10.9.0.254"} {
			p := ns.exits(t, 1, append(command, "--addr", addrs)...)
			require.Len(t, p.Lines("^rnicd: --addr "+taken+": another host on the link has this address, "+
				"the one with MAC "+mac+
				"; choose another, or take it from that host$"), 1, "%s", p)
			require.Empty(t, p.Lines("^ready "), "%s", p)
		}
	}
	p := ns.rnicd(t, "serve", "--region", "1MiB", "--addr", "10.9.0.2/24,fd09::2/64")
	p.Expect(t, 1, "^ready ")
}

// A second TAP cannot have the kernel's side in the network of the first: the kernel would go on
// sending to the first.
func TestHostAddrTwice(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.serving(t)
	for addr, refused := range map[string]bool{
		"--addr=10.9.0.2/24 --host-addr=10.9.0.253/24":         true,
		"--addr=10.9.0.2/16 --host-addr=10.9.3.253/16":         true, // the /24 is nearer
		"--addr=10.9.0.2/30 --host-addr=10.9.0.1/30":           false,
		"--addr=10.8.0.2/24 --host-addr=10.8.0.254/24":         false,
		"--addr=10.9.0.2/24,fd09::2/64 --host-addr=fd09::1/64": false,
	} {
		p := ns.rnicd(t, append([]string{"serve", "--dev", "rnic1", "--region", "1MiB"},
			strings.Fields(addr)...)...)
		if refused {
			require.Equal(t, 1, p.Wait(t), "%s", p)
			require.Len(
				t,
				p.Lines(
					`^rnicd: --host-addr 10.9.[03].253/\d+: rnic0 has an address of that network already \(10.9.0.254/24\), `+
						`and the kernel would look for 10.9.0.2 there; choose another network, or take that address away$`), 1, "%s", p)
			continue
		}
		p.Expect(t, 1, "^ready ")
		ns.ends(t, p)
	}
}
