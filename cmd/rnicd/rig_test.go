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
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience bounds every wait for another process. It is generous: the machine may be busy.
const patience = 60 * time.Second

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

// programPath builds rnicd where every user can run it, with DPDK's driver when the headers are there, under the race
// detector when this test is.
func programPath(t testing.TB) string {
	t.Helper()
	program.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "rnicd-test-"); program.err != nil {
			return
		}
		program.path = filepath.Join(program.dir, "rnicd")
		args := []string{"build", "-buildvcs=false", "-o", program.path}
		switch {
		case raceEnabled:
			args = append(args, "-race")
		case exec.Command("pkg-config", "--exists", "libdpdk").Run() == nil:
			args = append(args, "-tags", "dpdk")
			program.dpdk = true
		}
		if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
			program.err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
			return
		}
		program.err = os.Chmod(program.dir, 0o755)
	})
	require.NoError(t, program.err)
	return program.path
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace and a TAP in it")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun: ", err)
	}
}

// namespace is a network namespace without a name: it goes with its last process, whatever happens to this one.
type namespace struct {
	fd     int
	starts chan func() // on a thread that lives as long as the namespace: Pdeathsig is about threads
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	needRoot(t)
	ns := &namespace{starts: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for fn := range ns.starts {
			fn()
		}
	}()
	if err := <-ready; err != nil {
		close(ns.starts)
		t.Skip("needs a network namespace: ", err)
	}
	t.Cleanup(func() {
		close(ns.starts)
		_ = unix.Close(ns.fd)
	})
	ns.run(t, "ip", "link", "set", "lo", "up")
	return ns
}

// do calls fn on a thread inside the namespace.
func (ns *namespace) do(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		fn()
	}()
	<-done
}

// run runs a command that must succeed.
func (ns *namespace) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	p := ns.start(t, exec.Command(name, args...))
	require.Equal(t, 0, p.wait(t), "%s %v: %s", name, args, p)
	return p.String()
}

// has says whether the namespace has a device of that name.
func (ns *namespace) has(t testing.TB, device string) bool {
	return strings.Contains(ns.run(t, "ip", "-o", "link"), ": "+device+":")
}

// start starts a command inside the namespace. It dies with the test.
func (ns *namespace) start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return startVia(t, cmd, func(start func()) {
		done := make(chan struct{})
		ns.starts <- func() { start(); close(done) }
		<-done
	})
}

// rnicd starts the program inside the namespace.
func (ns *namespace) rnicd(t testing.TB, args ...string) *process {
	t.Helper()
	return ns.start(t, exec.Command(programPath(t), args...))
}

// process is a started command and the lines it printed so far, of both its outputs.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}

	mu      sync.Mutex
	text    []byte
	changed chan struct{} // closed and replaced with every line and at the end
}

func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	return startVia(t, cmd, func(start func()) { start() })
}

func startVia(t testing.TB, cmd *exec.Cmd, via func(start func())) *process {
	t.Helper()
	p := &process{cmd: cmd, exited: make(chan struct{}), changed: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	cmd.Stderr = p // the same Writer: one pipe for both keeps their order
	var err error
	via(func() { err = cmd.Start() })
	require.NoError(t, err)
	go func() {
		_ = cmd.Wait()
		close(p.exited)
		p.announce()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.exited
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.text = append(p.text, b...)
	p.mu.Unlock()
	p.announce()
	return len(b), nil
}

func (p *process) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

// lines are the whole lines so far that match the pattern.
func (p *process) lines(pattern string) []string {
	re := regexp.MustCompile(pattern)
	var match []string
	text := p.String()
	for line := range strings.Lines(text) {
		if line, whole := strings.CutSuffix(line, "\n"); whole && re.MatchString(line) {
			match = append(match, line)
		}
	}
	return match
}

// expect waits for the n-th line that matches.
func (p *process) expect(t testing.TB, n int, pattern string) string {
	t.Helper()
	line, ok := p.await(t, n, pattern)
	if !ok {
		require.FailNow(t, "the process ended first", "waiting for line %d of %q in:\n%s", n, pattern, p)
	}
	return line
}

// await waits likewise, or until the process has ended without such a line.
func (p *process) await(t testing.TB, n int, pattern string) (line string, ok bool) {
	t.Helper()
	timeout := time.After(patience)
	for over := false; ; {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if l := p.lines(pattern); len(l) >= n {
			return l[n-1], true
		}
		if over {
			return "", false
		}
		select {
		case <-changed:
		case <-p.exited:
			over = true
		case <-timeout:
			require.FailNow(t, "timed out", "waiting for line %d of %q in:\n%s", n, pattern, p)
		}
	}
}

// wait returns the exit status, 128+n after signal n.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // where the goroutines stand
		<-time.After(time.Second)
		require.FailNow(t, "did not end", "%v printed:\n%s", p.cmd.Args, p)
	}
	if st := p.cmd.ProcessState.Sys().(syscall.WaitStatus); st.Signaled() {
		return 128 + int(st.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
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
	p := ns.rnicd(t, append([]string{"serve", "--host-addr", kernelHost + "/24", "--region", "16MiB"}, args...)...)
	p.expect(t, 1, "^ready ")
	return p
}

// stop ends a daemon in order and looks that nothing stays.
func (ns *namespace) stop(t testing.TB, server *process) {
	t.Helper()
	server.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, server.wait(t), "%s", server)
	require.False(t, ns.has(t, "rnic0"), "the TAP is still there")
}

// put sends a file and expects the server to have it.
func (ns *namespace) put(t testing.TB, f testFile, args ...string) *process {
	t.Helper()
	p := ns.rnicd(t, append([]string{"put", "--timeout", "60s", f.path, serverAddr}, args...)...)
	require.Equal(t, 0, p.wait(t), "%s", p)
	require.Len(t, p.lines("^sha256 +"+f.sum+"$"), 1, "%s", p)
	return p
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
	file, err := os.Create(f.path)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, sum), rand.NewChaCha8([32]byte{byte(size)}), int64(size))
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
