package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
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

// A daemon, a command or a switch whose device was deleted cannot serve: it ends, and says why in
// one line.
func TestDeviceDeleted(t *testing.T) {
	t.Parallel()
	const gone = "tap: rnic0: the device is gone: somebody deleted it, or its network namespace " +
		"ended; nothing can be received or sent any more"
	for _, tc := range []struct{ args, text, ready, of string }{
		{"serve --region 1MiB", "", "^ready ", ""},
		{"serve --region 1MiB --once --fault dup=1%", "", "^ready ", ""},
		{"stream echo", "", "^ready ", ""},
		{"serve --config", example(t), "msg=ready ", `port "rnic0": `},
		{"switch --config", "[switch]\nsocket = \"@" + t.Name() + "\"\n[[uplink]]\nname = " +
			"\"outside\"\ndevice = \"rnic0\"\n[[program]]\nname = \"one\"\naddresses = " +
			"[\"10.9.0.1\"]\n", "msg=ready ", "uplink outside: "},
	} {
		args := strings.Fields(tc.args)
		if tc.text != "" {
			args = append(args, configured(t, tc.text))
		}
		ns := newNamespace(t)
		p := ns.rnicd(t, args...)
		p.Expect(t, 1, tc.ready)
		ns.Run(t, "ip", "link", "delete", "rnic0")
		require.Equal(t, 1, p.Wait(t), "%s", p)
		require.Equal(t, []string{"rnicd: " + tc.of + gone}, p.Lines("^rnicd: "), "%s", p)
	}
}

// slow makes a transfer last: one window per 50 ms.
const slow = "delay=50ms,seed=1"

// A signal in the middle of a transfer ends its process with a status that says so, and at most one
// line. What is killed leaves nothing: a server goes on with one line about its client, a TAP goes
// with its process, and a client without its server can be interrupted.
func TestEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		who    string
		sig    syscall.Signal
		status int
		lines  int // of rnicd's
		short  bool
	}{
		"client killed":      {"client", syscall.SIGKILL, 128 + 9, 0, true},
		"client interrupted": {"client", syscall.SIGINT, 130, 1, false},
		"server killed":      {"server", syscall.SIGKILL, 128 + 9, 0, false},
		"demo interrupted":   {"demo", syscall.SIGINT, 130, 1, false},
	} {
		if testing.Short() && !tc.short { // make test-all
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			file := zeros(t, 192<<20)
			var server, client, p *process
			if tc.who == "demo" {
				client = ns.rnicd(t, "demo", "--fault", slow, file)
			} else {
				server = ns.serving(t, "--fault", slow, "--region", "256MiB")
				client = ns.rnicd(t, "put", file, serverAddr)
			}
			client.Expect(t, 1, `^sent +\d+ %`)
			if p = client; tc.who == "server" {
				p = server
			}
			p.Signal(t, tc.sig)
			require.Equal(t, tc.status, p.Wait(t), "%s", p)
			require.Len(t, p.Lines("^rnicd: "), tc.lines, "%s", p)
			switch tc.who {
			case "client":
				server.Expect(t, 1, "^failed +"+kernelHost+":")
				ns.put(t, randomFile(t, 100_000))
				require.Len(t, server.Lines("^(failed|refused)"), 1, "%s", server)
				ns.stop(t, server)
			case "server":
				require.False(t, ns.Has(t, "rnic0"), "the TAP goes with its process")
				client.Signal(t, os.Interrupt) // the kernel's TCP would go on trying for minutes
				require.Equal(t, 130, client.Wait(t), "%s", client)
				require.Len(t, client.Lines("^rnicd: "), 1, "%s", client)
			}
		})
	}
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
