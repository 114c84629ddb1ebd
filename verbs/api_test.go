package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// compile builds a program of test/verbs against Debian's libraries, which it then runs without.
func (l *lab) compile(name string, flags ...string) string {
	l.t.Helper()
	out := filepath.Join(l.t.TempDir(), name)
	cmd := exec.Command("gcc", append(flags, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", out,
		"../test/verbs/"+name+".c", "../test/verbs/pair.c", "-libverbs", "-lrdmacm")...)
	text, err := cmd.CombinedOutput()
	require.NoError(l.t, err, "%s", text)
	return out
}

// Every call with its results and errors; a signal handler of the program's, at 1 kHz from before the engine is loaded, runs on no
// thread of the engine; a child of fork is told that it has none.
func TestAPI(t *testing.T) {
	l := newLab(t)
	p := l.run("gcc", l.compile("api"))
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}

// The walk finds no fault of the C library's, nor a leak, under the sanitizers of gcc: both are built with them.
func TestAPIUnderSanitizers(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	const flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
	build := exec.Command("shim/build.sh", filepath.Join(dir, "librnicd_verbs.so"))
	build.Env = append(os.Environ(), "CFLAGS="+flags)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Symlink(filepath.Join(l.dir, "librnicd_engine.so"), filepath.Join(dir, "librnicd_engine.so")))
	asan, err := exec.Command("gcc", "-print-file-name=libasan.so").Output()
	require.NoError(t, err)
	cmd := exec.Command(l.compile("api", strings.Fields(flags)...))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+strings.TrimSpace(string(asan))+":"+filepath.Join(dir, "librnicd_verbs.so"),
		"RNICD_ENGINE="+filepath.Join(l.dir, "librnicd_engine.so"))
	p := l.Start(t, cmd)
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}

// Nor does valgrind, in what is C.
func TestAPIUnderValgrind(t *testing.T) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		skip.Missing(t, "needs valgrind")
	}
	l := newLab(t)
	cmd := exec.Command("valgrind", "-q", "--error-exitcode=9", "--suppressions=../test/verbs/engine.supp", l.compile("api"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so"))
	p := l.Start(t, cmd)
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}

// The library serves under the names of those that it stands for, without a preload, and also from a directory in
// LD_LIBRARY_PATH alone.
func TestUnderBothNames(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		require.NoError(t, os.Symlink(filepath.Join(l.dir, "librnicd_verbs.so"), filepath.Join(dir, name)))
	}
	cmd := exec.Command(l.compile("api"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	p := l.Start(t, cmd)
	require.Zero(t, p.Wait(t), "%s", p)
}

// Programs that use no verbs are as before.
func TestOtherPrograms(t *testing.T) {
	l := newLab(t)
	p := l.run("coreutils", "sh", "-c", "echo $(cat /proc/self/maps | grep -c librnicd_engine)")
	require.Zero(t, p.Wait(t))
	require.Equal(t, "0", strings.TrimSpace(p.String()), "the engine is loaded only when it is needed")
}

// A program that is killed takes its sockets with it, and the peer hears of that.
func TestKilled(t *testing.T) {
	for _, victim := range []string{"server", "client"} {
		t.Run(victim, func(t *testing.T) {
			l := newLab(t)
			server := l.run("rdmacm-utils", "rping", "-s", "-v", "-a", here.String())
			l.untilListening(rpingPort)
			client := l.run("rdmacm-utils", "rping", "-c", "-v", "-a", here.String())
			client.Expect(t, 3, "^ping data")
			dead, other := server, client
			if victim == "client" {
				dead, other = client, server
			}
			dead.Signal(t, syscall.SIGKILL)
			require.Equal(t, 128+int(syscall.SIGKILL), dead.Wait(t))
			other.Wait(t)
			require.Contains(t, other.String(), "DISCONNECT EVENT")
			require.False(t, l.listens(rpingPort))
		})
	}
}
