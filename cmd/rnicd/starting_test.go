package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A daemon that is told to end while it starts, here while it asks whether another host has its
// address, has not failed, and leaves nothing: systemctl stop does not leave a failed unit.
func TestStoppedWhileItStarts(t *testing.T) {
	ns := newNamespace(t)
	control := filepath.Join(t.TempDir(), "control.sock")
	p := ns.rnicd(t, "serve", "--config", configured(t, "[control]\nsocket = \""+control+
		"\"\n[[port]]\nname = \"rnic0\"\naddresses = [\"10.9.0.1/24\"]\ndad = "+
		"\"full\"\n[[service]]\nname = \"p\"\ntype = \"perf\"\nlisten = 7001\n"))
	p.Expect(t, 1, `msg="port opened" port=rnic0 `)
	ns.ends(t, p)
	p.Expect(t, 1, `msg="told to end before it was ready"`)
	require.Empty(t, p.Lines("^rnicd: |msg=ready "), "%s", p)
	require.False(t, ns.Has(t, "rnic0"), "the TAP is still there")
	require.NoFileExists(t, control)
}

// What a daemon waits for may come late: the start fails, which systemd takes for a reason to try
// again, and succeeds when it is there. doctor says meanwhile what is missing.
func TestAddressComesLate(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	file := configured(t, "[[port]]\nname = \"k\"\ndriver = \"kernel\"\naddresses = "+
		"[\"192.0.2.77\"]\n[[service]]\nname = \"p\"\ntype = \"perf\"\nlisten = 7001\n")
	p := ns.exits(t, 1, "serve", "--config", file)
	require.Len(t, p.Lines(
		`^rnicd: service "p" on port "k": .*192\.0\.2\.77:7001: bind: cannot assign requested address`),
		1, "%s", p)
	doctor := ns.exits(t, 1, "doctor", "--config", file)
	doctor.Expect(t, 1, `^lack  places       192\.0\.2\.77:7001: no interface has this address now$`)

	ns.Run(t, "ip", "address", "add", "192.0.2.77/32", "dev", "lo")
	p = ns.rnicd(t, "serve", "--config", file)
	p.Expect(t, 1, "msg=ready ")
	ns.ends(t, p)
}

// doctor ends with 1 where a daemon would not start: another process holds the TAP, has the TCP
// port, or a folder or a memif server is missing.
func TestDoctorExits(t *testing.T) {
	ns := newNamespace(t)
	const address = "\naddresses = [\"10.9.0.1/24\"]\n"
	service := "[[service]]\nname = \"p\"\ntype = \"perf\"\nlisten = 7001\n"
	kernel := "[[port]]\nname = \"k\"\ndriver = \"kernel\"\naddresses = [\"127.0.0.1\"]\n" + service
	tap := "[[port]]\nname = \"rnic0\"" + address
	ns.Run(t, "ip", "link", "set", "lo", "up")
	p := ns.rnicd(t, "serve", "--config", configured(t, tap+kernel))
	p.Expect(t, 1, "msg=ready ")
	for text, want := range map[string]string{
		tap + service: "port rnic0: ",
		kernel:        `127\.0\.0\.1:7001 is another process's`,
		"[[port]]\nname = \"rnic1\"\ncapture = \"/nowhere/x.pcapng\"" + address +
			service: "no folder /nowhere, for x.pcapng",
		"[[port]]\nname = \"m\"\ndriver = \"memif\"\nsocket = \"/nowhere/m.sock\"" + address +
			service: "port m: no server at /nowhere/m.sock",
	} {
		doctor := ns.exits(t, 1, "doctor", "--config", configured(t, text))
		doctor.Expect(t, 1, "^lack  places       "+want)
	}
	ns.stop(t, p)
}
