package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A link-local address has its zone everywhere: in the file, on the command line, and where the
// daemon tells of it.
//
// RFC 4007 section 6
func TestZones(t *testing.T) {
	ns := newNamespace(t)
	ns.Run(t, "ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
	ns.Run(t, "ip", "link", "set", "here", "up")
	ns.Run(t, "ip", "addr", "add", "fe80::1/64", "dev", "here", "nodad")
	text := func(address string) string {
		return `
[[port]]
name = "host"
driver = "kernel"
addresses = ["` + address + `"]

[[service]]
name = "scratch"
type = "region"
size = "1MiB"
allow = ["fe80::/64"]

[[service]]
name = "drain"
type = "stream"
mode = "sink"
`
	}
	check := ns.rnicd(t, "check", configured(t, text("fe80::1")))
	require.NotZero(t, check.Wait(t))
	check.Expect(t, 1, `"fe80::1": a link-local address is one of a link; name that, as fe80::1%eth0`)

	path := configured(t, text("fe80::1%here"))
	check = ns.rnicd(t, "check", path)
	require.Zero(t, check.Wait(t), "%s", check)
	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, "msg=ready ")
	f := randomFile(t, 1000)
	for _, target := range []string{"fe80::1%here", "[fe80::1%here]:7174"} {
		put := ns.rnicd(t, "put", "--timeout", "60s", f.path, target)
		require.Zero(t, put.Wait(t), "%s", put)
	}
	server.Expect(t, 2, `msg=served service=scratch remote=\[fe80::1%here\]:`)

	socket := filepath.Join(filepath.Dir(path), "control.sock")
	require.Contains(t, ns.ask(t, 0, "--json", "--socket", socket), `"fe80::1%here"`)
	var client net.Conn
	ns.Do(func() {
		var err error
		client, err = net.Dial("tcp", "[fe80::1%here]:5201")
		require.NoError(t, err)
	})
	defer client.Close()
	ss := func(filter string) int {
		p := ns.rnicd(t, "ss", "--socket", socket, filter)
		require.Zero(t, p.Wait(t), "%s", p)
		return len(p.Lines(`^established \[fe80::1%here\]:5201 -> \[fe80::1%here\]:[0-9]+ `))
	}
	require.Eventually(t, func() bool { return ss("service=drain") == 1 }, patience, time.Millisecond)
	for filter, want := range map[string]int{
		"local=fe80::1%here": 1, "remote=fe80::1": 1, "remote=fe80::/64": 1, "local=[fe80::1%here]:5201": 1, "remote=fe80::1%there": 0,
	} {
		require.Equal(t, want, ss(filter), filter)
	}
}
