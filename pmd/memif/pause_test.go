package memif

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A server that is stopped for longer than a handshake may take goes on with it when it runs again:
// with what the client has said meanwhile, and with what it says then.
func TestPausedHandshake(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	server := peer(t, "server", kind{}, socket)
	c := rawDial(t, socket)
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	var status unix.WaitStatus
	must(unix.Wait4(server.Process.Pid, &status, unix.WUNTRACED, nil))(t)
	require.True(t, status.Stopped())
	c.tells(goodInit().message(), -1)
	<-time.After(handshakeMax + handshakeMax/8)
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	require.Equal(t, msgACK, c.next().typ())
	c.lays(layout{})
	c.connect()
}
