package verbs

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// As many connections at once as a program opens, from one address, to a listener that has asked
// for no backlog: none is lost. cmtime begins all of them before it looks at the first answer.
func TestManyConnections(t *testing.T) {
	counts := []int{200, 1000}
	if testing.Short() {
		counts = counts[:1]
	}
	many := func(t *testing.T, n int, run func(role int, args ...string) *netlab.Process, at string) {
		server := run(0, "cmtime", "-c", strconv.Itoa(n))
		server.Expect(t, 1, "^rnicd: listening at ")
		client := run(1, "cmtime", "-c", strconv.Itoa(n), "-s", at)
		require.Zero(t, client.Wait(t), "%s", client)
		require.Empty(t, client.Lines("error"), "%s", client)
		require.Len(t, client.Lines("^rnicd: connected, "), n)
		server.Expect(t, n, "^rnicd: ended, .*: in order$")
		server.Signal(t, syscall.SIGKILL) // it serves for ever
		server.Wait(t)
	}
	for _, n := range counts {
		t.Run("sockets/"+strconv.Itoa(n), func(t *testing.T) {
			l := newLab(t)
			many(t, n, func(_ int, args ...string) *netlab.Process {
				return l.runOn("", "rdmacm-utils", args...)
			}, "127.0.0.1")
		})
		t.Run("memif/"+strconv.Itoa(n), func(t *testing.T) {
			l := newLab(t)
			flags := memifCable(t)
			hosts := []string{" --role server --addr 10.9.0.1/24", " --addr 10.9.0.2/24"}
			many(t, n, func(role int, args ...string) *netlab.Process {
				return l.runOn(flags+hosts[role], "rdmacm-utils", args...)
			}, "10.9.0.1")
		})
	}
}
