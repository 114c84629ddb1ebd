package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// machine is a make-believe machine for scripts/deps.sh: it has the tools that every system has,
// and stubs of Debian's package tools and of Go. What a stub knows is in files of the directory
// state.
type machine struct {
	dir, bin, state string
	hide            bool // the real Go, which the script would find
}

const (
	stubDpkgQuery = `for p in "$@"; do case "$p" in -*) ;; *) grep -qx "$p" "$STATE/missing" || echo "$p installed" ;; esac; done`
	stubAptGet    = `echo "$*" >>"$STATE/apt"; [ -e "$STATE/broken" ] && { echo "E: broken"; exit 100; }
case "$*" in *golang-go*) echo go1.19.8 >"$STATE/go"; cp "$STATE/stub-go" "$(dirname "$0")/go" ;; esac
[ "$1" = update ] || : >"$STATE/missing"`
	stubGo = `case "$1 $2" in
"env GOVERSION") case "$(cat "$STATE/go")" in go1.19*) exit 1 ;; esac; cat "$STATE/go" ;;
"env GOOS") echo linux ;;
"env GOARCH") echo amd64 ;;
"env GOPROXY") echo proxy ;;
"version ") echo "go version $(cat "$STATE/go") linux/amd64" ;;
"mod download") echo "$4" >>"$STATE/fetched"; [ -e "$STATE/offline" ] && { echo "dial tcp: offline"; exit 1; }
  mkdir -p "$STATE/toolchain/bin" "$STATE/toolchain/pkg/tool/linux_amd64"
  printf '#!/bin/sh\necho go1.26.0\n' >"$STATE/toolchain/bin/go"; : >"$STATE/toolchain/pkg/tool/linux_amd64/compile"
  chmod -R a-wx,a+X "$STATE/toolchain"; printf '{\n\t"Dir": "%s"\n}\n' "$STATE/toolchain" ;;
esac`
)

func newMachine(t *testing.T, goVersion string, missing ...string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{dir: dir, bin: filepath.Join(dir, "path"), state: filepath.Join(dir, "state")}
	for _, d := range []string{m.bin, m.state, filepath.Join(dir, "scripts")} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	for _, tool := range strings.Fields(
		"bash sh sed grep sort head tail cut cat cp mv rm mkdir mktemp chmod dirname printf env") {
		path := must(exec.LookPath(tool))(t)
		require.NoError(t, os.Symlink(path, filepath.Join(m.bin, tool)))
	}
	stub := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	stub(filepath.Join(m.bin, "dpkg-query"), stubDpkgQuery)
	stub(filepath.Join(m.bin, "apt-get"), stubAptGet)
	stub(filepath.Join(m.bin, "id"), `cat "$STATE/uid"`)
	stub(filepath.Join(m.state, "stub-go"), stubGo)
	m.set(t, "uid", "0")
	m.set(t, "missing", strings.Join(missing, "\n"))
	if goVersion != "" {
		stub(filepath.Join(m.bin, "go"), stubGo)
		m.set(t, "go", goVersion)
	}
	if _, err := os.Stat("/usr/local/go"); err == nil && goVersion == "" {
		m.hide = true
		if os.Geteuid() != 0 {
			skip.Missing(t, "needs root to hide /usr/local/go")
		}
	}
	script := readFile(t, "../../scripts/deps.sh")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", "deps.sh"), []byte(script), 0o755))
	require.NoError(
		t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ngo 1.26.0\n"), 0o644))
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", dir).Run() })
	return m
}

func (m *machine) set(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(m.state, name), []byte(text+"\n"), 0o644))
}

// said is what the stub was called with.
func (m *machine) said(name string) string {
	b, _ := os.ReadFile(filepath.Join(m.state, name))
	return string(b)
}

func (m *machine) deps(t *testing.T, what string) (status int, output string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(m.dir, "scripts", "deps.sh"), what)
	if m.hide {
		cmd = exec.Command("/bin/sh", "-c", `/bin/mount -t tmpfs none /usr/local/go && exec "$0" "$1"`,
			cmd.Path, what)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	cmd.Env = []string{"PATH=" + m.bin, "STATE=" + m.state, "TMPDIR=" + m.state}
	p := netlab.Start(t, cmd)
	return p.Wait(t), p.String()
}

// succeeds runs deps and returns what it said.
func (m *machine) succeeds(t *testing.T, what string) string {
	t.Helper()
	status, out := m.deps(t, what)
	require.Zero(t, status, out)
	return out
}

func TestDepsNothingMissing(t *testing.T) {
	for _, version := range []string{"go1.26.0", "go1.26.8", "go1.27.1 X:nocoverageredesign",
		"go1.30"} {
		m := newMachine(t, version)
		begin := time.Now()
		for _, what := range []string{"run", "test", "interop"} {
			require.Empty(t, m.succeeds(t, what))
		}
		// two hundredths of a second on a machine that does nothing else
		require.Less(t, time.Since(begin), 10*time.Second)
		require.Empty(t, m.said("apt"))
		require.Empty(t, m.said("fetched"))
	}
}

func TestDepsInstallsWhatIsMissing(t *testing.T) {
	m := newMachine(t, "go1.26.0", "iproute2", "libdpdk-dev", "tshark")
	require.Equal(t, "deps: installing iproute2 libdpdk-dev\n", m.succeeds(t, "run"))
	require.Equal(t, "update\n-o Acquire::Retries=5 install -y --no-install-recommends iproute2 "+
		"libdpdk-dev\n", m.said("apt"))
	require.Empty(t, m.succeeds(t, "run"))

	m = newMachine(t, "go1.26.0", "tshark")
	_, out := m.deps(t, "test")
	require.Equal(t, "deps: installing tshark\n", out)

	m = newMachine(t, "go1.26.0", "debootstrap")
	require.Empty(t, m.succeeds(t, "test"))
	require.Equal(t, "deps: installing debootstrap\n", m.succeeds(t, "interop"))

	m = newMachine(t, "go1.26.0", "tshark")
	m.set(t, "broken", "")
	status, out := m.deps(t, "test")
	require.Equal(t, 1, status)
	require.Regexp(
		t, `^deps: installing tshark\nE: broken\ndeps: apt-get failed; the whole log is in \S+\n$`, out)
}

func TestDepsWithoutRoot(t *testing.T) {
	m := newMachine(t, "go1.26.0", "iproute2")
	m.set(t, "uid", "1000")
	require.Equal(t, "deps: not root: going on without iproute2; install them with: apt-get install "+
		"iproute2\n", m.succeeds(t, "run"))
	require.Empty(t, m.said("apt"))
}

func TestDepsWithoutDebian(t *testing.T) {
	m := newMachine(t, "go1.26.0")
	require.NoError(t, os.Remove(filepath.Join(m.bin, "apt-get")))
	require.NoError(t, os.Remove(filepath.Join(m.bin, "dpkg-query")))
	require.Regexp(
		t, `^deps: not a Debian system: going on without Debian's packages iproute2 gcc .*\n$`,
		m.succeeds(t, "run"))
}

func TestDepsFetchesGo(t *testing.T) {
	const wanted = "golang.org/toolchain@v0.0.1-go1.26.0.linux-amd64\n"
	requireFetched := func(t *testing.T, m *machine) {
		t.Helper()
		require.Equal(t, wanted, m.said("fetched"))
		for _, f := range []string{"bin/go", "pkg/tool/linux_amd64/compile"} {
			st := must(os.Stat(filepath.Join(m.dir, "build/go", f)))(t)
			require.Equal(t, os.FileMode(0o111), st.Mode()&0o111, "%s is not executable", f)
		}
		require.Empty(t, m.succeeds(t, "run"), "the second time there is nothing to do")
		require.Equal(t, wanted, m.said("fetched"))
	}
	t.Run("by an old one", func(t *testing.T) {
		m := newMachine(t, "go1.19.8")
		require.Equal(t, "deps: fetching Go 1.26.0 with go1.19.8\n", m.succeeds(t, "run"))
		requireFetched(t, m)
	})
	t.Run("by one that must not fetch by itself", func(t *testing.T) { // GOTOOLCHAIN=local
		m := newMachine(t, "go1.22.3")
		m.succeeds(t, "run")
		requireFetched(t, m)
	})
	t.Run("by Debian's", func(t *testing.T) {
		m := newMachine(t, "")
		require.Equal(t, "deps: installing golang-go\ndeps: fetching Go 1.26.0 with go1.19.8\n",
			m.succeeds(t, "run"))
		requireFetched(t, m)
	})
	t.Run("without root", func(t *testing.T) {
		m := newMachine(t, "")
		m.set(t, "uid", "1000")
		status, out := m.deps(t, "run")
		require.Equal(t, 1, status)
		require.Contains(t, out, "deps: no Go found; install Go 1.26.0 or later (go.dev/doc/install), "+
			"or run once as root\n")
	})
	t.Run("without a network", func(t *testing.T) {
		m := newMachine(t, "go1.19.8")
		m.set(t, "offline", "")
		status, out := m.deps(t, "run")
		require.Equal(t, 1, status)
		require.Contains(t, out, "dial tcp: offline\ndeps: could not fetch "+
			"golang.org/toolchain@v0.0.1-go1.26.0.linux-amd64 through proxy; install Go 1.26.0 or later")
		require.NoDirExists(t, filepath.Join(m.dir, "build/go"))
	})
}
