package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// checkout is a directory with what `make run` uses when the program is built: its scripts and the
// program.
func checkout(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rnicd-test-run-") // not t.TempDir: other users must get in
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, from := range []string{"../../scripts/run.sh", "../../scripts/hugepages.sh",
		"../../hugepages/setup.sh", programPath(t)} {
		to := filepath.Join(dir, "bin", filepath.Base(from))
		if strings.HasPrefix(from, "../../") {
			to = filepath.Join(dir, strings.TrimPrefix(from, "../../"))
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		b := readFile(t, from)
		require.NoError(t, os.WriteFile(to, []byte(b), 0o755))
	}
	return dir
}

// runScript starts scripts/run.sh as the leader of a process group of its own, as a terminal does.
func runScript(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "scripts", "run.sh"), args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := netlab.Start(t, cmd)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return p
}

// requireNothingLeft looks for the namespace of a script that has ended (a TAP goes with it) and
// for programs of its checkout that still run.
func requireNothingLeft(t *testing.T, dir string, p *process) {
	t.Helper()
	require.NoFileExists(t, fmt.Sprintf("/run/netns/rnicd-run-%d", p.PID()), "the namespace is there")
	entries := must(os.ReadDir("/proc"))(t)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		require.False(t, err == nil && strings.HasPrefix(exe, dir), "process %s still runs %s",
			e.Name(), exe)
	}
	require.Empty(t, p.Lines("line [0-9]+:"), "complaints of the shell: %s", p)
}

func needIP(t *testing.T) {
	t.Helper()
	netlab.NeedRoot(t)
	if _, err := exec.LookPath("ip"); err != nil {
		skip.Missing(t, "needs iproute2: %v", err)
	}
	if out, err := exec.Command("unshare", "-n", "true").CombinedOutput(); err != nil {
		skip.Missing(t, "needs network namespaces: %v: %s", err, out)
	}
}

func TestRunScript(t *testing.T) {
	needIP(t)
	dir := checkout(t)
	t.Run("made file", func(t *testing.T) {
		p := runScript(t, dir, "tap", "")
		require.Equal(t, 0, p.Wait(t), "%s", p)
		require.Len(t, p.Lines("^sha256 "), 2, "%s", p)
		require.Equal(t, p.Lines("^sha256 ")[0], p.Lines("^sha256 ")[1], "%s", p)
		require.Len(t, p.Lines("^received +64.0 MiB from "), 1, "%s", p)
		requireNothingLeft(t, dir, p)
	})
	t.Run("file larger than the usual region", func(t *testing.T) {
		name := zeros(t, 257<<20+1)
		p := runScript(t, dir, "tap", name)
		require.Equal(t, 0, p.Wait(t), "%s", p)
		require.Len(t, p.Lines("^ready .* region of 258MiB$"), 1, "%s", p)
		requireNothingLeft(t, dir, p)
	})
	t.Run("a file beside us, faults", func(t *testing.T) {
		p := runScript(t, dir, "tap", "bin/rnicd", "--fault", "drop=1%,reorder=1%,seed=5")
		require.Equal(t, 0, p.Wait(t), "%s", p)
		requireNothingLeft(t, dir, p)
	})
	t.Run("dpdk", func(t *testing.T) {
		if !program.dpdk {
			skip.Missing(t, "the program is built without DPDK's driver")
		}
		var p *process
		withEALMemory(t, func() *process {
			p = runScript(t, dir, "dpdk", "bin/rnicd")
			p.Wait(t)
			return p
		})
		require.Equal(t, 0, p.Wait(t), "%s", p)
		require.Len(t, p.Lines(`^device +rnic0 \(net_tap0\),`), 1, "%s", p)
		require.Empty(t, p.Lines(`\(\):`), "noise of DPDK's: %s", p)
		requireNothingLeft(t, dir, p)
	})
}

func TestRunScriptErrors(t *testing.T) {
	needIP(t)
	dir := checkout(t)
	for _, c := range sample.Of(t, 3, []struct {
		name   string
		args   []string
		status int
		want   string // the pattern of the only complaint
	}{
		{"driver", []string{"banana", ""}, 2, "^run: PMD=banana: want tap or dpdk$"},
		{"missing file", []string{"tap", "/no/such"}, 1,
			"^run: FILE=/no/such: no such file, or not readable$"},
		{"directory", []string{"tap", "/tmp"}, 1, "^run: FILE=/tmp: no such file, or not readable$"},
		{"server's flag", []string{"tap", "", "--banana"}, 1,
			"^rnicd: unknown flag: --banana; see rnicd serve --help$"},
		{"region", []string{"tap", "", "--region", "1000GiB"}, 1,
			"^rnicd: hugepages: .*ask for less or add memory( \\(or .* are free\\))?$"},
		{"refused", []string{"tap", "", "--region", "1MiB"}, 1,
			"^rnicd: put to 10.9.0.1:7174: xfer: the server refused: 67108864 octets offered"},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := runScript(t, dir, c.args...)
			require.Equal(t, c.status, p.Wait(t), "%s", p)
			require.NotEmpty(t, p.Lines(c.want), "%s", p)
			requireNothingLeft(t, dir, p)
		})
	}
}

// Interrupted at any moment it leaves nothing. Ctrl-C signals the whole group, kill the script
// alone.
func TestRunScriptInterrupted(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	needIP(t)
	hangup := make(chan os.Signal, 1)
	// handled here it is no longer ignored in the script, where nohup would have it so
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	dir := checkout(t)
	file := zeros(t, 192<<20)
	for _, c := range sample.Of(t, 2, []struct {
		name   string
		at     string // the line it comes after
		sig    syscall.Signal
		group  bool
		status int
	}{
		{"Ctrl-C as the server starts", "^server ", syscall.SIGINT, true, 130},
		{"Ctrl-C as the client starts", "^client ", syscall.SIGINT, true, 130},
		{"Ctrl-C in the transfer", `^sent +\d+ %`, syscall.SIGINT, true, 130},
		{"TERM to the script in the transfer", `^sent +\d+ %`, syscall.SIGTERM, false, 143},
		{"TERM to the script as the server starts", "^server ", syscall.SIGTERM, false, 143},
		{"the terminal goes", `^client `, syscall.SIGHUP, true, 129},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := runScript(t, dir, "tap", file, "--fault", slow)
			p.Expect(t, 1, c.at)
			pid := p.PID()
			if c.group {
				pid = -pid
			}
			require.NoError(t, syscall.Kill(pid, c.sig))
			require.Equal(t, c.status, p.Wait(t), "%s", p)
			requireNothingLeft(t, dir, p)
		})
	}
}

// make run | head -1: the script dies of its output, and leaves nothing either.
func TestRunScriptWithoutReader(t *testing.T) {
	needIP(t)
	dir := checkout(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(dir, "scripts", "run.sh"), "tap", zeros(t, 192<<20),
		"--fault", slow)
	cmd.Dir, cmd.Stdout = dir, w
	p := netlab.Start(t, cmd)
	require.NoError(t, w.Close())
	line := must(bufio.NewReader(r).ReadString('\n'))(t)
	require.Contains(t, line, "server ")
	require.NoError(t, r.Close())
	require.NotZero(t, p.Wait(t), "%s", p)
	require.NoFileExists(t, fmt.Sprintf("/run/netns/rnicd-run-%d", p.PID()), "the namespace is there")
}

// Without root the same job runs in one process, and says so.
func TestRunScriptWithoutRoot(t *testing.T) {
	dir := checkout(t)
	cmd := exec.Command(filepath.Join(dir, "scripts", "run.sh"), "tap", "bin/rnicd")
	cmd.Dir = dir
	if os.Geteuid() == 0 {
		asNobody(cmd)
	}
	p := netlab.Start(t, cmd)
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^run: not root: the same transfer between two pollers of one process, "+
		"over a cable in memory$"), 1, "%s", p)
	require.Len(t, p.Lines("^sha256 "), 2, "%s", p)
	requireNothingLeft(t, dir, p)
}
