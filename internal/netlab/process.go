package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a started command and the lines it printed so far, of both its outputs.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}

	mu      sync.Mutex
	text    []byte
	changed chan struct{} // closed and replaced with every line and at the end
}

// Start starts a command where the test itself is. It is killed when the test is over.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return startVia(t, cmd, func(start func()) { start() })
}

func startVia(t testing.TB, cmd *exec.Cmd, via func(start func())) *Process {
	t.Helper()
	p := &Process{cmd: cmd, exited: make(chan struct{}), changed: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p // the same Writer: one pipe for both keeps their order
	}
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

// Write takes what the command prints; it is for exec.Cmd.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.text = append(p.text, b...)
	p.mu.Unlock()
	p.announce()
	return len(b), nil
}

func (p *Process) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// String is all that was printed so far.
func (p *Process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}

// Lines are the whole lines so far that match the pattern.
func (p *Process) Lines(pattern string) []string {
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

// Expect waits for the n-th line that matches.
func (p *Process) Expect(t testing.TB, n int, pattern string) string {
	t.Helper()
	line, ok := p.Await(t, n, pattern)
	if !ok {
		require.FailNow(t, "the process ended first", "waiting for line %d of %q in:\n%s", n, pattern, p)
	}
	return line
}

// Await waits likewise, or until the process has ended without such a line.
func (p *Process) Await(t testing.TB, n int, pattern string) (line string, ok bool) {
	t.Helper()
	timeout := time.After(Patience)
	for over := false; ; {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if l := p.Lines(pattern); len(l) >= n {
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

// AwaitListener waits until a TCP socket in the process's network namespace listens on the port, or
// the process has ended. It is for programs that print nothing once they are ready.
func (p *Process) AwaitListener(t testing.TB, port uint16) (ok bool) {
	t.Helper()
	for until := time.Now().Add(Patience); ; {
		for _, family := range []string{"tcp", "tcp6"} {
			table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.PID(), family))
			if err == nil && hasListener(string(table), port) {
				return true
			}
		}
		require.True(t, time.Now().Before(until), "nothing listens on port %d; %v printed:\n%s", port,
			p.cmd.Args, p)
		select {
		case <-p.exited:
			return false
		case <-time.After(time.Millisecond):
		}
	}
}

// hasListener looks for a listener in /proc/net/tcp: number, local address and port, remote ones,
// state.
func hasListener(table string, port uint16) bool {
	const stateListen = "0A" // TCP_LISTEN, net/tcp_states.h
	at := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		col := strings.Fields(line)
		if len(col) > 3 && col[3] == stateListen && strings.HasSuffix(col[1], at) {
			return true
		}
	}
	return false
}

// Wait returns the exit status, 128+n after signal n.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	return p.WaitFor(t, Patience)
}

// WaitFor is Wait for a process that computes for long by itself.
func (p *Process) WaitFor(t testing.TB, bound time.Duration) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(bound):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // where the goroutines stand
		<-time.After(time.Second)
		require.FailNow(t, "did not end", "%v printed:\n%s", p.cmd.Args, p)
	}
	if st := p.cmd.ProcessState.Sys().(syscall.WaitStatus); st.Signaled() {
		return 128 + int(st.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to a process that has not been waited for.
func (p *Process) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }
