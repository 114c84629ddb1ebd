package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// readerless is a pipe that nobody reads: its reader is gone, or it is full and there.
func readerless(t *testing.T, full bool) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = read.Close() // it may be closed
		require.NoError(t, write.Close())
	})
	if !full {
		require.NoError(t, read.Close())
		return write
	}
	fd := int(write.Fd())
	require.NoError(t, unix.SetNonblock(fd, true))
	for page := make([]byte, 4096); err == nil; {
		_, err = unix.Write(fd, page)
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, unix.SetNonblock(fd, false))
	return write
}

const readerConfig = `
[control]
socket = "CONTROL"

[[port]]
name = "local"
driver = "kernel"
addresses = ["127.0.0.1"]

[[service]]
name = "measure"
type = "perf"
connections = 1
`

// A daemon serves, reloads and ends in order whether its log is read or not, and says how many
// lines are lost.
func TestDaemonGoesOnWithoutReader(t *testing.T) {
	for name, full := range map[string]bool{"gone": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			m, socket := newManager(t)
			sock := filepath.Join(t.TempDir(), "control.sock")
			text := strings.ReplaceAll(readerConfig, "CONTROL", sock)
			path := configured(t, text)
			cmd := exec.Command(programPath(t), "serve", "--config", path)
			cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
			cmd.Stderr = readerless(t, full)
			server := ns.Start(t, cmd)
			require.Equal(t, "READY=1\nSTATUS=1 service on 1 port", m.hear())
			for range 5 { // each of which is logged
				ns.succeeds(t, "perf write lat 127.0.0.1 -n 3")
			}
			require.NoError(t, os.WriteFile(path, []byte(text+"mistake"), 0o600))
			server.Signal(t, syscall.SIGHUP)
			require.Regexp(t, "^RELOADING=1", m.hear())
			require.Equal(t, "READY=1\nSTATUS=1 service on 1 port; NOT RELOADED: see the log", m.hear())
			st := ns.exits(t, 0, "status", "--socket", sock)
			if !full { // those for which there is room wait
				require.Len(t, st.Lines(`^log: \d+ lines are lost`), 1, "%s", st)
			}
			server.Signal(t, syscall.SIGTERM)
			require.Equal(t, "STOPPING=1\nSTATUS=draining", m.hear())
			require.Equal(t, 0, server.Wait(t))
		})
	}
}

// An error at the start is an exit status that systemd takes for one, also without a reader.
func TestFailureWithoutReader(t *testing.T) {
	for _, args := range [][]string{{"serve", "--config", "/nowhere"},
		{"switch", "--config", "/nowhere"}, {"status", "--socket", "/nowhere"}} {
		cmd := exec.Command(programPath(t), args...)
		cmd.Stderr = readerless(t, false)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &exit)
		require.True(t, exit.Exited(), "%v: %v", args, exit)
		require.NotZero(t, exit.ExitCode())
	}
}

// So do a switch, and servers in the foreground.
func TestServersGoOnWithoutReader(t *testing.T) {
	for name, full := range map[string]bool{"gone": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			m, socket := newManager(t)
			cmd := exec.Command(programPath(t), "switch", "--config", configured(t, `
[control]
socket = "off"
[[program]]
name = "one"
socket = "`+filepath.Join(t.TempDir(), "memif.sock")+`"
addresses = ["10.9.0.2"]
`))
			cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
			cmd.Stderr = readerless(t, full)
			sw := ns.Start(t, cmd)
			require.Regexp(t, "^READY=1", m.hear())
			for range 100 { // a thread's counters, more than a pipe holds
				sw.Signal(t, syscall.SIGUSR1)
			}
			sw.Signal(t, syscall.SIGHUP)
			require.Regexp(t, "^RELOADING=1", m.hear())
			require.Regexp(t, "^READY=1", m.hear())
			sw.Signal(t, syscall.SIGTERM)
			require.Equal(t, 0, sw.Wait(t))

			for _, args := range [][]string{{"stream", "sink"}, {"stream", "sink", "--json"},
				{"serve", "--pmd", "kernel", "--region", "1MiB", "--addr", "127.0.0.1"}} {
				out := readerless(t, full)
				cmd := exec.Command(programPath(t), args...)
				if args[0] == "stream" {
					cmd.Args = append(cmd.Args, "--pmd", "kernel", "--addr", "127.0.0.1")
				}
				cmd.Stdout, cmd.Stderr = out, out
				server := ns.Start(t, cmd)
				for range 3 {
					client := ns.rnicd(t, "stream", "source", "--pmd", "kernel", "--wait", "60s", "--bytes",
						"1000", "127.0.0.1")
					if args[0] == "serve" {
						client = ns.rnicd(t, "put", "--wait", "60s", zeros(t, 100), "127.0.0.1")
					}
					require.Equal(t, 0, client.Wait(t), "%v: %s", args, client)
				}
				server.Signal(t, syscall.SIGTERM)
				code := server.Wait(t)
				require.True(t, code == 0 || code == 130, "%v: %d", args, code)
			}
		})
	}
}
