package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two daemons' Writes through shared memory, whichever of them is memif's server, over one queue
// and two, without root's devices: each file lands whole. A client that is killed in the middle
// does not disturb the next.
func TestPutOverMemif(t *testing.T) {
	for _, c := range []struct{ serving, putting, queues string }{
		{memifServer, memifClient, "1"}, {memifServer, memifClient, "2"}, {memifClient, memifServer, "1"},
	} {
		t.Run(c.serving+c.queues, func(t *testing.T) {
			ns := newNamespace(t) // without any device
			socket := filepath.Join(t.TempDir(), "memif.sock")
			args := func(role, addr string, more ...string) []string {
				return append([]string{"--pmd", "memif", "--socket", socket, "--role", role, "--id", "3",
					"--secret", "psst", "--queues", c.queues, "--addr", addr, "--no-dad"}, more...)
			}
			start := func(n int) (*process, testFile) {
				f := randomFile(t, n)
				return ns.rnicd(t, append([]string{"put"}, args(c.putting, "10.9.0.2/24", "--wait", "30s",
					"--timeout", "60s", f.path, serverAddr)...)...), f
			}
			serve := append([]string{"serve"}, args(c.serving, "10.9.0.1/24", "--region", "128MiB")...)
			var server, client *process
			var f testFile
			if c.serving == memifServer {
				server = ns.rnicd(t, serve...)
				server.Expect(t, 1, "^ready ")
				client, f = start(16<<20 + 1)
			} else {
				client, f = start(16<<20 + 1)
				client.Expect(t, 1, "^memory ")
				server = ns.rnicd(t, serve...)
			}
			done := func() {
				require.Equal(t, 0, client.Wait(t), "%s\n%s", client, server)
				require.Len(t, client.Lines("^sha256 +"+f.sum+"$"), 1, "%s", client)
				server.Expect(t, 1, "^sha256 +"+f.sum+"$")
			}
			done()
			victim, _ := start(128 << 20)
			victim.Expect(t, 1, "^memory ")
			victim.Signal(t, syscall.SIGKILL)
			victim.Wait(t)
			client, f = start(16<<20 + 2)
			done()
			ns.ends(t, server)
			require.NoFileExists(t, socket)
		})
	}
}

// What is missing or of no use for memif is named, and a server that is not there.
func TestMemifFlags(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	ns := newNamespace(t)
	for args, want := range map[string]string{
		"--pmd memif":                                    `--pmd memif: --socket is missing: the server's, as /run/memif.sock or @memif`,
		"--pmd memif --socket x --role boss":             `--role "boss": want client or server`,
		"--pmd memif --socket x --dev eth0":              `--pmd memif has no use for --dev: leave it out`,
		"--socket x --id 3":                              `--pmd tap has no use for --socket, --id: leave it out`,
		"--pmd memif --socket @nobody-there-at-all":      `--socket @nobody-there-at-all: no server answers: connecting: dial unixpacket @nobody-there-at-all: connect: connection refused`,
		"--pmd memif --socket /no/where/s --role server": `memif: no folder for /no/where/s: mkdir -p /no/where`,
	} {
		p := ns.exits(t, 1, append([]string{"serve", "--region", "1MiB"}, strings.Fields(args)...)...)
		require.Equal(t, []string{"rnicd: " + want}, errorLines(p), "%s", args)
	}
}
