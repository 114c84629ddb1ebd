package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// patience bounds every wait for another process. It is generous: the machine may be busy.
const patience = netlab.Patience

// program is the binary under test, built once, and whether DPDK's driver is in it.
var program struct {
	sync.Once
	dir  string
	path string
	dpdk bool
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if program.dir != "" {
		os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

// programPath builds rnicd where every user can run it, with DPDK's driver when the headers are
// there, under the race detector when this test is.
func programPath(t testing.TB) string {
	t.Helper()
	program.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "rnicd-test-"); program.err != nil {
			return
		}
		program.path = filepath.Join(program.dir, "rnicd")
		var flags []string
		switch {
		case raceEnabled:
			flags = []string{"-race"}
		case exec.Command("pkg-config", "--exists", "libdpdk").Run() == nil:
			flags = []string{"-tags", "dpdk"}
			program.dpdk = true
		}
		program.err = netlab.BuildProgram(repository, program.dir, flags...)
		if program.err != nil {
			return
		}
		program.err = os.Chmod(program.dir, 0o755)
	})
	require.NoError(t, program.err)
	return program.path
}

// namespace is one in which the program under test runs.
type namespace struct{ *netlab.Namespace }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{netlab.New(t)}
}

// process is a started command and what it printed so far.
type process = netlab.Process

// veth makes a pair of interfaces, without IPv6, that are up.
func (ns *namespace) veth(t testing.TB, one, other string) {
	t.Helper()
	ns.Run(t, "ip", "link", "add", one, "type", "veth", "peer", "name", other)
	for _, dev := range []string{one, other} {
		ns.Run(t, "sysctl", "-qw", "net.ipv6.conf."+dev+".disable_ipv6=1")
		ns.Run(t, "ip", "link", "set", dev, "up")
	}
}

// rnicd starts the program inside the namespace.
func (ns *namespace) rnicd(t testing.TB, args ...string) *process {
	t.Helper()
	return ns.Start(t, exec.Command(programPath(t), args...))
}

// Where the daemon under test is, and its host's kernel.
const (
	serverHost = "10.9.0.1"
	serverAddr = serverHost + ":7174"
	kernelHost = "10.9.0.254"
)

// serving starts a daemon on a TAP in the namespace and waits until it is ready.
func (ns *namespace) serving(t testing.TB, args ...string) *process {
	t.Helper()
	p := ns.rnicd(t, append([]string{"serve", "--host-addr", kernelHost + "/24", "--region", "16MiB"},
		args...)...)
	p.Expect(t, 1, "^ready ")
	return p
}

// stop ends a daemon in order and looks that nothing stays.
func (ns *namespace) stop(t testing.TB, server *process) {
	t.Helper()
	server.Signal(t, syscall.SIGTERM)
	require.Equal(t, 0, server.Wait(t), "%s", server)
	require.False(t, ns.Has(t, "rnic0"), "the TAP is still there")
}

// put sends a file and expects the server to have it.
func (ns *namespace) put(t testing.TB, f testFile, args ...string) *process {
	t.Helper()
	p := ns.exits(t, 0, append([]string{"put", "--timeout", "60s", f.path, serverAddr}, args...)...)
	require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 1, "%s", p)
	return p
}

// exits runs a command to its end, which must have this status.
func (ns *namespace) exits(t testing.TB, status int, args ...string) *process {
	t.Helper()
	p := ns.rnicd(t, args...)
	require.Equal(t, status, p.Wait(t), "%s", p)
	return p
}

// outputOf runs a command, which must succeed, and returns what it says.
func outputOf(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd.Args, out)
	return string(out)
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b := must(os.ReadFile(path))(t)
	return string(b)
}

// testFile is a file of random octets.
type testFile struct {
	path string
	size int
	sum  string
}

func randomFile(t testing.TB, size int) testFile {
	t.Helper()
	f := testFile{path: filepath.Join(t.TempDir(), fmt.Sprintf("random-%d", size)), size: size}
	file := must(os.Create(f.path))(t)
	sum := sha256.New()
	_, err := io.CopyN(io.MultiWriter(file, sum), rand.NewChaCha8([32]byte{byte(size)}), int64(size))
	require.NoError(t, errors.Join(err, file.Close()))
	f.sum = hex.EncodeToString(sum.Sum(nil))
	return f
}

// zeros is a sparse file, with a space in its name.
func zeros(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nothing but zeros")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
	return path
}

// errorLines are the lines a failed command printed that are not its report of the memory it got.
func errorLines(p *process) []string {
	var lines []string
	for line := range bytes.Lines([]byte(p.String())) {
		if !bytes.HasPrefix(line, []byte("memory ")) {
			lines = append(lines, strings.TrimSuffix(string(line), "\n"))
		}
	}
	return lines
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
