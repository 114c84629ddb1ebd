package main

import (
	"path/filepath"
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
