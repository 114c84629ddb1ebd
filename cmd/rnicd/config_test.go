package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is the configuration of the guide.
func example(t *testing.T) string {
	t.Helper()
	guide := must(os.ReadFile("../../docs/guides/daemon.md"))(t)
	_, text, found := strings.Cut(string(guide), "<!-- daemon -->\n```toml\n")
	require.True(t, found)
	text, _, found = strings.Cut(text, "```\n")
	require.True(t, found)
	return text + "\n[control]\nsocket = \"off\"\n" // daemons of several tests run at a time
}

// configured writes a configuration.
func configured(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rnicd.toml")
	if !strings.Contains(text, "[control]") { // the default is another test's, too
		text += "\n[control]\nsocket = \"" + filepath.Join(dir, "control.sock") + "\"\n"
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// measuring is a client that is connected and stays so.
func (ns *namespace) measuring(t testing.TB, addr string) *process {
	t.Helper()
	p := ns.rnicd(t, "perf", "read", "lat", addr, "-D", "1h")
	p.Expect(t, 1, "^read latency with ")
	return p
}

// The guide's example is what it says: judged, started, used, reloaded, drained; nothing stays.
func TestDaemonOfTheGuide(t *testing.T) {
	ns := newNamespace(t)
	path := configured(t, example(t))
	check := ns.exits(t, 0, "check", path)
	require.Len(t, check.Lines("^"+path+": 2 ports, 3 services$"), 1, "%s", check)

	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, "msg=ready .*services=3 ports=2$")
	f := randomFile(t, 3<<20)
	ns.put(t, f)
	ns.exits(t, 0, "put", "--timeout", "60s", f.path, "127.0.0.1")
	server.Expect(t, 2, "msg=served service=scratch .*sha256="+f.sum)
	ns.succeeds(t, "perf write lat 10.9.0.1:7200 -n 3 --timeout 60s")
	ns.succeeds(t, "stream source 10.9.0.1 --pmd kernel -n 1M")
	server.Expect(t, 1, "msg=served service=speed ")

	require.NoError(
		t, os.WriteFile(path, []byte(strings.Replace(example(t), "connections = 8", "conections = 8", 1)),
			0o600))
	server.Signal(t, syscall.SIGHUP)
	server.Expect(t, 1, `level=ERROR msg="not reloaded" error="`+path+
		`:22:1: service.conections: unknown key; did you mean connections\?"`)
	require.NoError(
		t,
		os.WriteFile(
			path,
			[]byte(strings.Replace(example(t), "listen = 7200", "listen = 7201", 1)+
				"[tcp]\nrto_min = \"5ms\"\n"), 0o600))
	ns.exits(t, 0, "check", path)
	server.Signal(t, syscall.SIGHUP)
	server.Expect(t, 1, `msg=reloaded added=\[\] removed=\[\] changed=\[measure\] limits=\[\]`)
	server.Expect(
		t, 1, `level=WARN msg="needs a restart; it is as it was" key=port.rnic0.tcp.rto_min$`)
	require.Len(t, server.Lines("needs a restart"), 1, "%s", server)
	ns.succeeds(t, "perf write lat 10.9.0.1:7201 -n 3 --timeout 60s")

	ns.stop(t, server)
	server.Expect(t, 1, "msg=drained .*reset=0")
}

// A daemon that was killed in the middle leaves nothing that keeps the next one from starting.
func TestDaemonAfterACrash(t *testing.T) {
	ns := newNamespace(t)
	socket := filepath.Join(t.TempDir(), "memif.sock")
	path := configured(t, example(t)+fmt.Sprintf(`
[[port]]
name = "shared"
driver = "memif"
role = "server"
socket = %q
addresses = ["10.7.0.1/24"]
dad = "off"
`, socket))
	f := randomFile(t, 1<<20)
	for range 3 {
		server := ns.rnicd(t, "serve", "--config", path)
		server.Expect(t, 1, "msg=ready ")
		ns.put(t, f)
		client := ns.measuring(t, "10.9.0.1:7200") // a connection that is there when it is killed
		server.Signal(t, syscall.SIGKILL)
		server.Wait(t)
		client.Signal(t, syscall.SIGKILL)
		client.Wait(t)
		require.False(t, ns.Has(t, "rnic0"))
		_, err := os.Stat(socket)
		require.NoError(t, err, "it is still there")
	}
	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, "msg=ready ")
	ns.stop(t, server)
}

// The first signal waits for what is served, the second does not.
func TestDaemonEndsAtOnceWhenToldTwice(t *testing.T) {
	ns := newNamespace(t)
	server := ns.rnicd(t, "serve", "--config", configured(t, "[limits]\ndrain = \"1h\"\n"+example(t)))
	server.Expect(t, 1, "msg=ready ")
	client := ns.measuring(t, "10.9.0.1:7200")
	server.Signal(t, syscall.SIGTERM)
	server.Expect(t, 1, "msg=draining ")
	ns.ends(t, server)
	require.Len(t, server.Lines("msg=drained .*reset=1"), 1, "%s", server)
	require.Equal(t, 1, client.Wait(t), "%s", client)
}

// Doctor's exit status is for scripts.
func TestDoctor(t *testing.T) {
	ns := newNamespace(t)
	p := ns.exits(t, 0, "doctor", "--json")
	require.Len(t, p.Lines(`^{"check":"tap","verdict":"ok"`), 1, "%s", p)
	p = ns.exits(t, 1, "doctor", "--config",
		configured(t, strings.Replace(example(t), "host_address", "cores = \"1023\"\nhost_address", 1)))
	require.Len(t, p.Lines("^lack  cores +CPUs 1023 of cores are not there"), 1, "%s", p)
	require.Len(t, p.Lines("^rnicd: 1 thing is lacking$"), 1, "%s", p)
}
