package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An IPv6 address that another host on the link has is refused before anybody is told that the daemon is ready. The other
// host is the kernel, at the other end of a TAP that was there before.
func TestAddressTaken(t *testing.T) {
	ns := newNamespace(t)
	ns.Run(t, "ip", "tuntap", "add", "dev", "rnic0", "mode", "tap", "vnet_hdr")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	ns.Run(t, "ip", "addr", "add", "fd09::1/64", "dev", "rnic0", "nodad")
	for _, command := range [][]string{{"serve", "--region", "1MiB"}, {"stream", "server"}} {
		p := ns.rnicd(t, append(command, "--addr", "10.9.0.1/24,fd09::1/64")...)
		require.Equal(t, 1, p.Wait(t), "%s", p)
		require.Len(t, p.Lines("^rnicd: --addr: another host on the link has 1 of our IPv6 addresses; choose others$"), 1, "%s", p)
		require.Empty(t, p.Lines("^ready "), "%s", p)
	}
	p := ns.rnicd(t, "serve", "--region", "1MiB", "--addr", "fd09::2/64")
	p.Expect(t, 1, "^ready ")
}
