package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manager is systemd's end of a service's notifications.
type manager struct {
	t      *testing.T
	socket *net.UnixConn
	alive  int // messages WATCHDOG=1 so far
}

func newManager(t *testing.T) (m *manager, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	l := must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { l.Close() })
	return &manager{t: t, socket: l}, path
}

// hear returns the next message, other than that the service is alive, which is counted.
func (m *manager) hear() string {
	m.t.Helper()
	for {
		if text := m.next(); text != "WATCHDOG=1" {
			return text
		}
	}
}

func (m *manager) next() string {
	m.t.Helper()
	require.NoError(m.t, m.socket.SetReadDeadline(time.Now().Add(patience)))
	b := make([]byte, 4096)
	n := must(m.socket.Read(b))(m.t)
	if string(b[:n]) == "WATCHDOG=1" {
		m.alive++
	}
	return string(b[:n])
}

// aliveAgain waits for n messages that the service is alive; another one is not expected.
func (m *manager) aliveAgain(n int) {
	m.t.Helper()
	for range n {
		require.Equal(m.t, "WATCHDOG=1", m.next())
	}
}

// What systemd hears of rnicd.service: ready when it serves, alive all the time, a reload from its
// beginning to its end, whether it succeeds or not, and the drain, in which it is alive, too.
func TestDaemonTellsSystemd(t *testing.T) {
	ns := newNamespace(t)
	m, socket := newManager(t)
	path := configured(t, "[limits]\ndrain = \"1h\"\n"+example(t))
	cmd := exec.Command(programPath(t), "serve", "--config", path)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000")
	server := ns.Start(t, cmd)
	require.Equal(t, "READY=1\nSTATUS=3 services on 2 ports", m.hear())
	require.Zero(t, m.alive, "it is not served yet")
	client := ns.measuring(t, "10.9.0.1:7200")
	m.aliveAgain(3)

	for _, c := range []struct{ text, failed string }{
		{example(t), ""}, {"mistake", "; NOT RELOADED: see the log"}, {example(t), ""},
	} {
		require.NoError(t, os.WriteFile(path, []byte("[limits]\ndrain = \"1h\"\n"+c.text), 0o600))
		server.Signal(t, syscall.SIGHUP)
		require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+$`, m.hear())
		require.Equal(t, "READY=1\nSTATUS=3 services on 2 ports"+c.failed, m.hear())
	}
	m.aliveAgain(3)

	server.Signal(t, syscall.SIGTERM)
	require.Equal(t, "STOPPING=1\nSTATUS=draining", m.hear())
	m.aliveAgain(3) // its client is there
	client.Signal(t, syscall.SIGKILL)
	require.Equal(t, 0, server.Wait(t), "%s", server)
	require.True(t, strings.Contains(server.String(), "msg=drained"))
}

// A manager that does not read keeps the daemon neither from serving nor from its end.
func TestDaemonGoesOnWithoutSystemd(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	ns := newNamespace(t)
	_, socket := newManager(t)
	full := must(net.Dial("unixgram", socket))(t)
	defer full.Close()
	raw, err := full.(*net.UnixConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Write(func(fd uintptr) bool {
		for err = nil; err == nil; {
			_, err = syscall.Write(int(fd), []byte("x"))
		}
		return true
	}))
	require.ErrorIs(t, err, syscall.EAGAIN)
	cmd := exec.Command(programPath(t), "serve", "--config", configured(t, example(t)))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000")
	server := ns.Start(t, cmd)
	server.Expect(t, 1, "msg=ready ")
	ns.stop(t, server)
}

// A SIGHUP that comes during the start is not lost: the file is read again once the daemon serves.
func TestReloadDuringStart(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	m, socket := newManager(t)
	path := configured(t, "[[port]]\nname = \"rnic0\"\naddresses = [\"10.9.0.1/24\"]\ndad = "+
		"\"full\"\n")
	cmd := exec.Command(programPath(t), "serve", "--config", path)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	server := ns.Start(t, cmd)
	server.Expect(t, 1, `msg="port opened"`) // whose address is probed for some seconds
	for range 3 {
		server.Signal(t, syscall.SIGHUP)
	}
	require.Regexp(t, "^READY=1", m.hear())
	require.Regexp(t, "^RELOADING=1", m.hear())
	require.Regexp(t, "^READY=1", m.hear())
	ns.stop(t, server)
}
