package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/status"
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
	ns.exits(t, 0, "check", path)
	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, "msg=ready ")
	f := randomFile(t, 1000)
	for _, target := range []string{"fe80::1%here", "[fe80::1%here]:7174"} {
		ns.exits(t, 0, "put", "--timeout", "60s", f.path, target)
	}
	server.Expect(t, 2, `msg=served service=scratch remote=\[fe80::1%here\]:`)

	socket := filepath.Join(filepath.Dir(path), "control.sock")
	require.Contains(t, ns.ask(t, 0, "--json", "--socket", socket), `"fe80::1%here"`)
	var client net.Conn
	ns.Do(func() { client = must(net.Dial("tcp", "[fe80::1%here]:5201"))(t) })
	defer client.Close()
	ss := func(filter string) int {
		p := ns.exits(t, 0, "ss", "--socket", socket, filter)
		return len(p.Lines(`^established \[fe80::1%here\]:5201 -> \[fe80::1%here\]:[0-9]+ `))
	}
	require.Eventually(t, func() bool { return ss("service=drain") == 1 }, patience, time.Millisecond)
	for filter, want := range map[string]int{
		"local=fe80::1%here": 1, "remote=fe80::1": 1, "remote=fe80::/64": 1,
		"local=[fe80::1%here]:5201": 1, "remote=fe80::1%there": 0,
	} {
		require.Equal(t, want, ss(filter), filter)
	}
}

// Our own stack serves on a link-local address alone, of either family, for as long as nobody
// claims it.
func TestLinkLocalAlone(t *testing.T) {
	t.Parallel()
	for target, host := range map[string]string{"fe80::2%rnic0": "fe80::1/64",
		"169.254.7.2": "169.254.7.1/16"} {
		ns := newNamespace(t)
		addr, _, _ := strings.Cut(target, "%")
		_, bits, _ := strings.Cut(host, "/")
		path := configured(t, `
[[port]]
name = "rnic0"
addresses = ["`+addr+"/"+bits+`"]

[[service]]
name = "scratch"
type = "region"
size = "1MiB"
`)
		server := ns.rnicd(t, "serve", "--config", path)
		server.Expect(t, 1, "msg=ready ")
		ns.Run(t, "ip", "addr", "add", host, "dev", "rnic0", "nodad")
		socket := filepath.Join(filepath.Dir(path), "control.sock")
		require.Eventually(t, func() bool { // until the port has been looked at, each second
			var now status.Daemon
			require.NoError(t, json.Unmarshal([]byte(ns.ask(t, 0, "--json", "--socket", socket)), &now))
			return now.At.Sub(now.Started) > 2*time.Second
		}, patience, 100*time.Millisecond)
		f := randomFile(t, 1000)
		ns.exits(t, 0, "put", "--timeout", "60s", f.path, target)
		ns.stop(t, server)
	}
}
