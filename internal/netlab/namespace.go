// Package netlab makes networks for tests: network namespaces with veth pairs or TAP devices,
// processes in them, captures that tshark reads, and pcap files. Everything except pcap files needs
// root. Every wait is bounded by Patience. Nothing outlives the test, however it ends: a namespace
// has no name and goes with its last thread, process and socket; processes die with the test.
//
// It is imported by tests only, of any layer, and so imports nothing of ours except internal/skip.
package netlab

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// Patience bounds every wait for another process. It is generous: the machine may be busy.
const Patience = 60 * time.Second

// NeedRoot skips a test that could not make namespaces and TAP devices.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "needs root: makes a network namespace and a TAP in it")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		skip.Missing(t, "needs /dev/net/tun: %v", err)
	}
}

// Enter puts the test itself into a namespace of its own, with its loopback down. The test's
// goroutine stays on its thread, which ends with it: sockets must be made, and devices be opened,
// on that goroutine.
func Enter(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		skip.Missing(t, "needs a network namespace: %v", err)
	}
}

// Namespace is a network namespace that the test is not in itself.
type Namespace struct {
	fd     int
	starts chan func() // on a thread that lives as long as the namespace: Pdeathsig is about threads
}

// New makes a Namespace whose loopback is up.
func New(t testing.TB) *Namespace {
	t.Helper()
	NeedRoot(t)
	ns := &Namespace{starts: make(chan func())}
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
		skip.Missing(t, "needs a network namespace: %v", err)
	}
	t.Cleanup(func() {
		close(ns.starts)
		_ = unix.Close(ns.fd)
	})
	ns.Run(t, "ip", "link", "set", "lo", "up")
	return ns
}

// Do calls fn on a thread inside the namespace. What fn opens stays there; goroutines that it
// starts do not run there.
func (ns *Namespace) Do(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done) // also when a failed require ends fn's goroutine
		runtime.LockOSThread()
		if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		fn()
	}()
	<-done
}

// Start starts a command inside the namespace. It dies with the test.
func (ns *Namespace) Start(t testing.TB, cmd *exec.Cmd) *Process {
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

// Run runs a command that must succeed and returns what it printed.
func (ns *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	p := ns.Start(t, exec.Command(name, args...))
	require.Equal(t, 0, p.Wait(t), "%s %v: %s", name, args, p)
	return p.String()
}

// Hold starts a process that does nothing in the namespace until the test is over: something that
// can be named by its PID.
func (ns *Namespace) Hold(t testing.TB) *Process {
	t.Helper()
	return ns.Start(t, exec.Command("sleep", "infinity"))
}

// Has says whether the namespace has a device of that name.
func (ns *Namespace) Has(t testing.TB, device string) bool {
	t.Helper()
	text := ns.Run(t, "ip", "-o", "link")
	return strings.Contains(text, ": "+device+":") || strings.Contains(text, ": "+device+"@")
}
