package stack

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/stretchr/testify/require"
)

// snooping makes the bridge listen to MLD and be the querier, which speaks the version.
func (b *bridged) snooping(version string) {
	b.t.Helper()
	b.bridge.Run(b.t, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "1",
		"mcast_mld_version", version, "mcast_query_response_interval", "20")
	b.until("the bridge has an address", func() bool {
		out := b.bridge.Run(b.t, "ip", "-6", "addr", "show", "dev", "br0", "scope", "link")
		return strings.Contains(out, "fe80::") && !strings.Contains(out, "tentative")
	})
	b.bridge.Run(b.t, "ip", "link", "set", "br0", "type", "bridge", "mcast_querier", "1")
}

// groups are those that the bridge passes to dev.
func (b *bridged) groups(dev string) (all []string) {
	b.t.Helper()
	for line := range strings.Lines(b.bridge.Run(b.t, "bridge", "mdb", "show", "dev", "br0")) {
		if words := strings.Fields(line); strings.Contains(line, " port "+dev+" ") {
			for i, w := range words {
				if w == "grp" {
					all = append(all, words[i+1])
				}
			}
		}
	}
	return all
}

// pings6 says whether the client reaches a, whose MAC it does not know.
func (b *bridged) pings6(a netip.Prefix) bool {
	b.t.Helper()
	b.client.Run(b.t, "ip", "-6", "neigh", "flush", "dev", "wire0")
	return b.client.Start(b.t, exec.Command("ping", "-6", "-n", "-c", "1", "-W", "5",
		a.Addr().String())).Wait(b.t) == 0
}

// A bridge that snoops and is the querier passes solicitations to us: neighbours reach us, and find
// that an address of theirs is ours. It is so with either version, and the bridge's General Query
// finds us when it knows no group.
// req: 4861-7.2.1-1, 3810-6.2-2, 3810-8.2.1-1
func TestKernelSnoops(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		t.Run("MLDv"+version, func(t *testing.T) {
			t.Parallel()
			netlab.NeedTshark(t)
			b := newBridged(t)
			b.snooping(version)
			capture := b.bridge.Capture(t, "br0")
			p, _ := b.start("stack0", inet.MAC{2, 0, 0, 0, 7, 1}, "before", nil)
			require.NoError(t, b.await(p))
			group := inet.AddrFrom(ourAddr6.Addr()).SolicitedNode().String()
			b.until("the bridge knows our group", func() bool {
				return slices.Contains(b.groups("stack0"), group)
			})
			require.True(t, b.pings6(ourAddr6))
			b.dials(ourAddr6)

			b.client.Run(t, "ip", "-6", "addr", "add", ourAddr6.String(), "dev", "wire0")
			b.until("it is found to be ours", func() bool {
				return strings.Contains(b.client.Run(t, "ip", "-6", "addr", "show", "dev", "wire0"),
					"dadfailed")
			})
			b.client.Run(t, "ip", "-6", "addr", "del", ourAddr6.String(), "dev", "wire0")

			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "0") // forgets
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_querier", "0")
			require.Empty(t, b.groups("stack0"))
			queries := counted(t, p).Listener.Queries
			b.snooping(version)
			b.until("asked and answered", func() bool {
				return counted(t, p).Listener.Queries > queries &&
					slices.Contains(b.groups("stack0"), group)
			})
			require.True(t, b.pings6(ourAddr6))
			require.Equal(t, version == "1", counted(t, p).Listener.Older)

			const more = "fd77::77"
			require.NoError(t, p.Submit(func() {
				require.NoError(t, p.AddAddr(netip.MustParsePrefix(more+"/64")))
			}))
			b.until("another", func() bool { return slices.Contains(b.groups("stack0"), "ff02::1:ff00:77") })
			require.NoError(t, p.Submit(func() {
				require.NoError(t, p.RemoveAddr(netip.MustParseAddr(more)))
			}))
			b.until("left", func() bool { return !slices.Contains(b.groups("stack0"), "ff02::1:ff00:77") })

			path := capture.Stop(t)
			require.Zero(t, netlab.Analyse(t, path).Malformed)
			count := func(filter string) int {
				return netlab.Count(t, path, "eth.src == 02:00:00:00:07:01 && ipv6.hlim == 1 && "+
					"ipv6.opt.router_alert == 0 && "+filter)
			}
			record := "icmpv6.mldr.mar.multicast_address == " + group + " && icmpv6.mldr.mar.record_type == "
			require.Zero(t, count("icmpv6.checksum.status != 1"))
			if version == "1" {
				require.NotZero(t, count("icmpv6.type == 131 && icmpv6.mld.multicast_address == "+group))
				require.Equal(t, 1, count("icmpv6.type == 132"))
			} else {
				require.NotZero(t, count(record+"4"))
				require.NotZero(t, count(record+"2"))
				require.NotZero(t, count("icmpv6.mldr.mar.record_type == 3"))
			}
		})
	}
}
