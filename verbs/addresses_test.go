package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

// Ids have the addresses and ports that they are bound to, of both families, with zones, for
// listening and for connecting; they are told so, and the peer sees them.
func TestAddresses(t *testing.T) {
	const port = "7475"
	check := func(t *testing.T, l *lab, run func(role int, args ...string) *netlab.Process, at, ours,
		other, peer string) {
		program := l.compile("addresses")
		server := run(0, program, "listen", at, port)
		server.Expect(t, 1, "^listening$")
		client := run(1, program, "check", ours, other, peer, port)
		require.Zero(t, client.Wait(t), "%s\nserver:\n%s", client, server)
		client.Expect(t, 1, "^all well$")
	}
	type addresses struct{ at, ours, other, peer string }
	for name, x := range sample.Map(t, 2, map[string]addresses{
		"IPv4":       {"0.0.0.0", "127.0.0.2", "::1", "127.0.0.1"},
		"IPv6":       {"::1", "::1", "127.0.0.1", "::1"},
		"IPv4 at ::": {"::", "127.0.0.2", "::1", "127.0.0.1"},
		"link-local": {"::", "fe80::2%here", "127.0.0.1", "fe80::1%here"},
		"at a zone":  {"fe80::1%here", "fe80::2%here", "127.0.0.1", "fe80::1%here"},
	}) {
		t.Run("sockets/"+name, func(t *testing.T) {
			l := newLab(t)
			l.Run(t, "ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
			l.Run(t, "ip", "link", "set", "here", "up")
			l.Run(t, "ip", "addr", "add", "fe80::1/64", "dev", "here", "nodad")
			l.Run(t, "ip", "addr", "add", "fe80::2/64", "dev", "here", "nodad")
			check(t, l, func(_ int, args ...string) *netlab.Process {
				return l.run("gcc", args...)
			}, x.at, x.ours, x.other, x.peer)
		})
	}
	for name, x := range sample.Map(t, 2, map[string]addresses{
		"IPv4":       {"0.0.0.0", "10.9.0.2", "fd00::2", "10.9.0.1"},
		"IPv6":       {"fd00::1", "fd00::2", "10.9.0.2", "fd00::1"},
		"IPv4 at ::": {"::", "10.9.0.2", "fd00::2", "10.9.0.1"},
		"link-local": {"::", "fe80::2%7", "10.9.0.2", "fe80::1%7"},
	}) {
		t.Run("memif/"+name, func(t *testing.T) {
			l := newLab(t)
			flags := memifCable(t)
			hosts := []string{
				" --role server --addr 10.9.0.1/24 --addr fd00::1/64 --addr fe80::1/64",
				" --addr 10.9.0.2/24 --addr fd00::2/64 --addr fe80::2/64",
			}
			check(t, l, func(role int, args ...string) *netlab.Process {
				return l.runOn(flags+hosts[role], "gcc", args...)
			}, x.at, x.ours, x.other, x.peer)
		})
	}
}
