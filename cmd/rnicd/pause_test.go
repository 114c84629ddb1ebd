package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that is stopped as a whole for longer than its idle timeout, as a virtual machine is,
// goes on with its clients: what they have sent waits in the device, and is taken before anybody
// is silent.
func TestPause(t *testing.T) {
	f := randomFile(t, 4<<20)
	for name, c := range map[string]struct{ server, client []string }{
		"put": {[]string{"serve", "--region", "16MiB", "--fault", slow},
			[]string{"put", "--timeout", "60s", f.path, serverAddr}},
		"perf": {[]string{"perf", "server"}, []string{"perf", "send", "lat", serverHost, "-D", "4s"}},
		"stream": {[]string{"stream", "sink"}, []string{"stream", "source", "--pmd", "kernel", "--time",
			"4s", serverHost}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			server := ns.rnicd(t, append(c.server, "--host-addr", kernelHost+"/24", "--idle-timeout",
				"700ms")...)
			server.Expect(t, 1, "^ready ")
			client := ns.rnicd(t, c.client...)
			for range 2 {
				ns.Run(t, "sleep", "0.3") // the client is in the middle of it
				server.Signal(t, syscall.SIGSTOP)
				ns.Run(t, "sleep", "1.4") // twice the timeout
				server.Signal(t, syscall.SIGCONT)
			}
			require.Equal(t, 0, client.Wait(t), "%s\n%s", client, server)
			require.Empty(t, server.Lines("silent|nothing (came|moved|was)|took longer"), "%s", server)
		})
	}
}

// A client that is stopped for longer than its --timeout goes on, too: of that time only the part
// counts in which it runs.
func TestPauseOfClient(t *testing.T) {
	t.Parallel()
	f := randomFile(t, 8<<20)
	ns := newNamespace(t)
	server := ns.serving(t, "--fault", slow, "--region", "16MiB")
	client := ns.rnicd(t, "put", "--timeout", "3s", f.path, serverAddr)
	ns.Run(t, "sleep", "0.3") // it is in the middle of it
	client.Signal(t, syscall.SIGSTOP)
	ns.Run(t, "sleep", "4")
	client.Signal(t, syscall.SIGCONT)
	require.Equal(t, 0, client.Wait(t), "%s\n%s", client, server)
	ns.stop(t, server)
}
