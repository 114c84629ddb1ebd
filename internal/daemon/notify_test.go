package daemon

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"os"
)

// systemd hears what the daemon does, at a path and in the abstract namespace; without its socket
// nobody is told.
func TestNotifier(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"),
		"@rnicd-notify-" + strconv.Itoa(os.Getpid())} {
		l := must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
		defer l.Close()
		require.NoError(t, l.SetReadDeadline(time.Now().Add(patience)))
		t.Setenv("NOTIFY_SOCKET", path)
		n := NewNotifier()
		n.Ready("2 services on 1 port")
		n.Reloading()
		n.Stopping("draining")
		n.Alive()
		heard := func() string {
			b := make([]byte, 500)
			m := must(l.Read(b))(t)
			return string(b[:m])
		}
		require.Equal(t, "READY=1\nSTATUS=2 services on 1 port", heard())
		require.True(t, strings.HasPrefix(heard(), "RELOADING=1\nMONOTONIC_USEC="))
		require.Equal(t, "STOPPING=1\nSTATUS=draining", heard())
		require.Equal(t, "WATCHDOG=1", heard())
	}
	t.Setenv("NOTIFY_SOCKET", "")
	NewNotifier().Ready("nobody")
	t.Setenv("WATCHDOG_USEC", "20000000")
	require.Equal(t, 10*time.Second, WatchdogPeriod())
	t.Setenv("WATCHDOG_PID", "1")
	require.Zero(t, WatchdogPeriod())
}
