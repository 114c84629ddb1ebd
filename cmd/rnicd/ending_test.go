package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

// Both signals end the daemon in order: status 0, no TAP, also in the middle of a transfer.
func TestServeEndsOnSignals(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.serving(t)
			require.True(t, ns.Has(t, "rnic0"))
			ns.Do(func() {
				c := dialRaw(t)
				defer c.close()
				c.start(100_000)
				server.Signal(t, sig)
				require.Equal(t, 0, server.Wait(t), "%s", server)
			})
			require.Len(t, server.Lines(
				"^failed +"+kernelHost+`:\d+: cut short: the server was told to end$`), 1, "%s", server)
			require.Len(t, server.Lines("^failed "), 1, "%s", server)
			require.Empty(t, server.Lines("^rnicd: "), "%s", server)
			require.False(t, ns.Has(t, "rnic0"))
		})
	}
}

// A daemon whose device was deleted cannot serve: it ends, and says why.
func TestDeviceDeleted(t *testing.T) {
	t.Parallel()
	for _, args := range sample.Of(
		t, 2,
		[][]string{{"serve", "--region", "1MiB"}, {"serve", "--region", "1MiB", "--once", "--fault",
			"dup=1%"}, {"stream", "echo"}, {"stream", "sink"}}) {
		ns := newNamespace(t)
		p := ns.rnicd(t, args...)
		p.Expect(t, 1, "^ready ")
		ns.Run(t, "ip", "link", "delete", "rnic0")
		require.Equal(t, 1, p.Wait(t), "%s", p)
		require.Equal(t, []string{"rnicd: tap: rnic0: the device is gone: somebody deleted it, or its " +
			"network namespace ended; nothing can be received or sent any more"},
			p.Lines("^rnicd: "), "%s", p)
	}
}

// slow makes a transfer last: one window per 50 ms.
const slow = "delay=50ms,seed=1"

// midTransfer is a client that has begun to write to a server, and is far from its end.
func midTransfer(t *testing.T) (ns *namespace, server, client *process) {
	t.Helper()
	ns = newNamespace(t)
	server = ns.serving(t, "--fault", slow, "--region", "256MiB")
	client = ns.rnicd(t, "put", zeros(t, 192<<20), serverAddr)
	client.Expect(t, 1, `^sent +\d+ %`)
	return ns, server, client
}

// A client that is killed leaves one line at the server, which goes on.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	ns, server, client := midTransfer(t)
	client.Signal(t, syscall.SIGKILL)
	require.Equal(t, 128+9, client.Wait(t))
	server.Expect(t, 1, "^failed +"+kernelHost+":")
	ns.put(t, randomFile(t, 100_000))
	require.Len(t, server.Lines("^(failed|refused)"), 1, "%s", server)
	ns.stop(t, server)
}

// A client that is interrupted says so.
func TestClientInterrupted(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	t.Parallel()
	ns, server, client := midTransfer(t)
	client.Signal(t, os.Interrupt)
	require.Equal(t, 130, client.Wait(t), "%s", client)
	require.Len(t, client.Lines("^rnicd: interrupted$"), 1, "%s", client)
	server.Expect(t, 1, "^failed +"+kernelHost+":")
	ns.stop(t, server)
}

func TestDemoInterrupted(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	t.Parallel()
	p := netlab.Start(t, exec.Command(programPath(t), "demo", "--fault", slow, zeros(t, 250<<20)))
	p.Expect(t, 1, `^sent +\d+ %`)
	p.Signal(t, os.Interrupt)
	require.Equal(t, 130, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^rnicd: "), 1, "%s", p)
}

// A server that is killed leaves no TAP, and a client that can be interrupted.
func TestServerKilled(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	t.Parallel()
	ns, server, client := midTransfer(t)
	server.Signal(t, syscall.SIGKILL)
	require.Equal(t, 128+9, server.Wait(t))
	require.False(t, ns.Has(t, "rnic0"), "the TAP goes with its process")
	client.Signal(t, os.Interrupt) // the kernel's TCP would go on trying for minutes
	require.Equal(t, 130, client.Wait(t), "%s", client)
	require.Len(t, client.Lines("^rnicd: "), 1, "%s", client)
}

// A client that falls silent is given up after --idle-timeout.
func TestClientSilent(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	server := ns.serving(t, "--idle-timeout", "500ms")
	ns.Do(func() {
		c := dialRaw(t)
		defer c.close()
		c.start(100_000)
		server.Expect(t, 1, "^failed +"+c.local()+": xfer: nothing was written by the client for 500ms$")
	})
	ns.put(t, randomFile(t, 1000))
	ns.stop(t, server)
}
