package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

const repository = "../.."

// need skips a test where a program is not there.
func need(t *testing.T, tool, where string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		skip.Missing(t, "no %s: apt-get install %s", tool, where)
	}
}

// libraries are the two that rnicd run preloads, built once into the directory of the program.
var libraries struct {
	sync.Once
	err error
}

// librariesPath is their directory, or "" where they cannot be built.
func librariesPath(t *testing.T) string {
	t.Helper()
	if exec.Command("gcc", "-E", "-include", "infiniband/verbs.h", "-include", "rdma/rdma_cma.h", "-x",
		"c", "/dev/null").Run() != nil {
		return ""
	}
	dir := filepath.Dir(programPath(t))
	lib := filepath.Join(dir, "libraries") // not beside the program: it would find them there
	libraries.Do(func() {
		if libraries.err = os.Mkdir(lib, 0o755); libraries.err != nil {
			return
		}
		libraries.err = netlab.BuildLibraries(repository, lib)
	})
	require.NoError(t, libraries.err)
	return lib
}

// install runs packaging/install.sh with the program under test, without the libraries.
func install(t *testing.T, verb, root, prefix string) {
	t.Helper()
	installWith(t, "", verb, root, prefix)
}

// installWith is install with the libraries of a directory. Where it has none, install says that it
// leaves them out, and nothing else.
func installWith(t *testing.T, lib, verb, root, prefix string) {
	t.Helper()
	// whose files nobody else may read
	cmd := exec.Command("sh", "-c", `umask 077; exec packaging/install.sh "$0"`, verb)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "PROGRAM="+programPath(t), "LIBRARIES="+lib, "DESTDIR="+root,
		"PREFIX="+prefix, "SYSCONFDIR=/etc", "SOURCE_DATE_EPOCH=1700000000")
	out := outputOf(t, cmd)
	want := ""
	if verb == "install" && lib == "" {
		want = "install: the libraries of rnicd run are left out: building them takes gcc, " +
			"libibverbs-dev, librdmacm-dev\n"
	}
	require.Equal(t, want, out)
}

// installed are the files below a folder.
func installed(t *testing.T, root string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info := must(d.Info())(t)
		require.Equal(t, fs.FileMode(0o444), info.Mode()&0o444, "%s is not for all to read", path)
		files = append(files, strings.TrimPrefix(path, root))
		return nil
	}))
	return files
}

// make install puts everything where the system looks for it; a second time it leaves a
// configuration that was changed alone, and so does make uninstall, which takes all else away.
func TestInstall(t *testing.T) {
	for prefix, zsh := range sample.Map(t, 1, map[string]string{"/usr": "vendor-completions",
		"/usr/local": "site-functions"}) {
		root := t.TempDir()
		install(t, "install", root, prefix)
		files := installed(t, root)
		for _, f := range []string{
			"/bin/rnicd", "/share/man/man1/rnicd.1.gz", "/share/man/man1/rnicd-serve.1.gz",
			"/share/man/man1/rnicd-perf-write.1.gz",
			"/share/man/man5/rnicd.toml.5.gz", "/share/bash-completion/completions/rnicd",
			"/share/zsh/" + zsh + "/_rnicd",
			"/share/fish/vendor_completions.d/rnicd.fish", "/lib/systemd/system/rnicd.service",
			"/lib/systemd/system/rnicd-switch.service",
			"/share/man/man5/rnicd-switch.toml.5.gz", "/lib/sysusers.d/rnicd.conf",
			"/lib/tmpfiles.d/rnicd.conf", "/share/rnicd/hugepages/setup.sh",
			"/share/doc/rnicd/guides/bare-metal.md",
			"/share/doc/rnicd/examples/config/tap.toml", "/share/doc/rnicd/examples/systemd/af-xdp.conf",
			"/share/doc/rnicd/monitoring/alerts.yml", "/share/doc/rnicd/SECURITY.md",
			"/share/doc/rnicd/results/benchmarks.md",
		} {
			require.Contains(t, files, prefix+f)
		}
		requireLinks(t, root, files)
		for service, command := range map[string]string{"rnicd": "serve --config /etc/rnicd/rnicd.toml",
			"rnicd-switch": "switch --config /etc/rnicd/switch.toml"} {
			unit := readFile(t, root+prefix+"/lib/systemd/system/"+service+".service")
			require.Contains(t, unit, "\nExecStart="+prefix+"/bin/rnicd "+command+"\n")
			require.Contains(t, unit, "\nExecReload="+prefix+"/bin/rnicd check "+
				strings.Fields(command)[2]+"\nExecReload=/bin/kill -HUP $MAINPID\n")
			for _, m := range regexp.MustCompile(`man:([\w.-]+)\((\d)\)`).FindAllStringSubmatch(
				unit, -1) {
				require.Contains(t, files, prefix+"/share/man/man"+m[2]+"/"+m[1]+"."+m[2]+".gz",
					"the unit names it")
			}
			for _, m := range regexp.MustCompile(regexp.QuoteMeta(prefix)+`/share/[\w./-]+\w`).FindAllString(
				unit, -1) {
				require.Contains(t, files, m, "the unit names it")
			}
		}

		require.Contains(t, files, "/etc/rnicd/switch.toml")
		config := root + "/etc/rnicd/rnicd.toml"
		require.Contains(t, files, "/etc/rnicd/rnicd.toml")
		require.NoError(t, os.WriteFile(config, []byte("# mine\n"), 0o644))
		install(t, "install", root, prefix)
		require.Equal(t, files, installed(t, root))
		require.Equal(t, "# mine\n", readFile(t, config))
		install(t, "uninstall", root, prefix)
		require.Equal(t, []string{"/etc/rnicd/rnicd.toml", "/etc/rnicd/switch.toml"}, installed(t, root))
	}
}

// An installed rnicd run finds the libraries in ../lib/rnicd of its own place, also when it is
// called by a link; the engine is loaded from there. make uninstall takes them away, and so does
// an installation without them: they would be another version's.
func TestInstallLibraries(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	lib := librariesPath(t)
	if lib == "" {
		skip.Missing(t, "needs gcc, libibverbs-dev and librdmacm-dev")
	}
	root := t.TempDir()
	installWith(t, lib, "install", root, "/usr")
	both := []string{"/usr/lib/rnicd/" + engineLibrary, "/usr/lib/rnicd/" + verbsLibrary}
	require.Subset(t, installed(t, root), both)
	link := filepath.Join(t.TempDir(), "rnicd")
	require.NoError(t, os.Symlink(filepath.Join(root, "usr/bin/rnicd"), link))
	for _, name := range []string{filepath.Join(root, "usr/bin/rnicd"), link} {
		out := outputOf(t, exec.Command(name, "run", "--", "/bin/true"))
		require.Empty(t, out)
		out = outputOf(t, exec.Command(name, "run", "--", "cat", "/proc/self/maps"))
		require.Contains(t, out, root+both[1])
	}
	t.Run("rping", func(t *testing.T) {
		need(t, "rping", "rdmacm-utils")
		ns := newNamespace(t)
		run := func(args ...string) *process {
			return ns.Start(t, exec.Command(link, append([]string{"run", "--verbose", "--", "rping", "-a",
				"127.0.0.1", "-C", "3", "-v"}, args...)...))
		}
		server := run("-s")
		server.Expect(t, 1, "listening at ")
		client := run("-c")
		require.Zero(t, client.Wait(t), "%s", client)
		client.Expect(t, 1, "^ping data: rdma-ping-2")
		require.Zero(t, server.Wait(t), "%s", server)
	})
	for _, verb := range []string{"install", "uninstall"} {
		installWith(t, lib, "install", root, "/usr")
		install(t, verb, root, "/usr")
		require.NoDirExists(t, filepath.Join(root, "usr/lib/rnicd"))
	}
}

// Without its libraries rnicd run says where it looked for them, and how to get them.
func TestRunWithoutLibraries(t *testing.T) {
	root := t.TempDir()
	install(t, "install", root, "/usr")
	for args, dirs := range map[string][]string{
		"":                   {root + "/usr/bin", root + "/usr/lib/rnicd", root + "/usr/lib"},
		"--lib=/no/such/lib": {"/no/such/lib"},
	} {
		cmd := exec.Command(root+"/usr/bin/rnicd",
			append(append([]string{"run"}, strings.Fields(args)...), "--", "/bin/true")...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, "rnicd: librnicd_verbs.so not found in "+strings.Join(dirs, ", ")+
			"; make build builds it and make install installs it, where gcc, libibverbs-dev and "+
			"librdmacm-dev are; --lib says where it is\n", string(out))
	}
}

// make install and make deb build the libraries where their headers are, and only there.
func TestInstallBuildsLibraries(t *testing.T) {
	need(t, "make", "make")
	for _, target := range []string{"install", "deb"} {
		for _, headers := range []bool{true, false} {
			cmd := exec.Command("make", "-n", target)
			cmd.Dir = repository
			cc := "true" // as if it found them
			if !headers {
				cc = "false"
			}
			cmd.Env = append(os.Environ(), "CC="+cc)
			out := outputOf(t, cmd)
			for _, want := range []string{"verbs/shim/build.sh bin/" + verbsLibrary,
				"verbs/cshared/build.sh bin/" + engineLibrary, `LIBRARIES="bin"`} {
				require.Equal(t, headers, strings.Contains(out, want), "%s\n%s", want, out)
			}
			if headers { // rnicd status --program says of which version the engine is
				require.Regexp(t, ` VERSION="\S+" verbs/cshared/build\.sh bin/`+engineLibrary, out)
			}
		}
	}
}

// requireLinks fails if a relative link of an installed document leads to no installed file or
// folder.
func requireLinks(t *testing.T, root string, files []string) {
	t.Helper()
	documents := 0
	for _, f := range files {
		if !strings.HasSuffix(f, ".md") {
			continue
		}
		documents++
		text := readFile(t, root+f)
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(m[1], "://") {
				_, err := os.Stat(filepath.Join(root+filepath.Dir(f), m[1]))
				require.NoError(t, err, "%s: %s", f, m[1])
			}
		}
	}
	require.Greater(t, documents, 50)
}

// The switch's configuration that comes with the program starts on a machine without devices, and
// the commands that it has for its programs reach each other.
func TestInstalledSwitchConfiguration(t *testing.T) {
	ns := newNamespace(t)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "programs"), 0o755)) // as the unit does
	text := strings.ReplaceAll(readFile(t, filepath.Join(repository, "packaging/switch.toml")),
		"/run/rnicd-switch", dir)
	commands := regexp.MustCompile(`# rnicd (perf .*)`).FindAllStringSubmatch(text, -1)
	require.Len(t, commands, 2)
	s := &switched{namespace: ns, process: ns.rnicd(t, "switch", "--config", configured(t, text))}
	s.Expect(t, 1, "msg=ready ")
	info := must(os.Stat(filepath.Join(dir, "programs/switch.sock")))(t)
	require.Equal(t, os.ModeSocket|0o660, info.Mode())
	server := ns.rnicd(t, append(strings.Fields(commands[0][1]), "--no-dad")...)
	server.Expect(t, 1, "^ready ")
	ns.succeeds(t, commands[1][1]+" --no-dad -n 3 --wait 60s --timeout 60s")
	ns.stop(t, server)
	s.end(t)
}

// The configuration that comes with the program is one, and serves on a machine without devices.
func TestInstalledConfiguration(t *testing.T) {
	ns := newNamespace(t)
	server := ns.rnicd(t, "serve", "--config", filepath.Join(repository, "packaging/rnicd.toml"))
	server.Expect(t, 1, "msg=ready ")
	ns.succeeds(t, "perf write lat 127.0.0.1 -n 3")
	ns.ends(t, server)
}

// The manual pages are well-formed, and what their time is does not depend on the clock.
func TestManualPages(t *testing.T) {
	need(t, "man", "man-db")
	var pages [2]string
	for i := range pages {
		pages[i] = t.TempDir()
		cmd := exec.Command(programPath(t), "man", pages[i])
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
		outputOf(t, cmd)
	}
	entries := must(os.ReadDir(pages[0]))(t)
	require.Greater(t, len(entries), 20)
	for _, e := range entries {
		text := readFile(t, filepath.Join(pages[0], e.Name()))
		require.True(t, text == readFile(t, filepath.Join(pages[1], e.Name())), e.Name())
		if !strings.HasSuffix(e.Name(), ".toml.5") {
			require.Contains(t, text, `"Nov 2023"`, e.Name())
		}
		cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
			filepath.Join(pages[0], e.Name()))
		cmd.Env = append(os.Environ(), "MANROFFSEQ=", "MANWIDTH=80", "LC_ALL=C.UTF-8")
		var wrong bytes.Buffer
		cmd.Stderr = &wrong
		require.NoError(t, cmd.Run(), "%s: %s", e.Name(), &wrong)
		require.Empty(t, wrong.String(), e.Name())
	}
}

// A shell completes commands and flags.
func TestCompletion(t *testing.T) {
	need(t, "bash", "bash")
	dir := t.TempDir()
	install(t, "install", dir, "/usr")
	// What bash-completion would give the script is little.
	const script = `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; }
__ltrim_colon_completions() { :; }
compopt() { :; }
_init_completion() { _get_comp_words_by_ref; }
PATH=$0:$PATH
. "$1"
COMP_WORDS=(rnicd $2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="rnicd $2"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
__start_rnicd
printf '%s\n' "${COMPREPLY[@]}"`
	for words, want := range map[string]string{"doc": "doctor", "serve --conf": "--config",
		"perf wr": "write"} {
		out := outputOf(t, exec.Command("bash", "-c", script, filepath.Join(dir, "usr/bin"),
			filepath.Join(dir, "usr/share/bash-completion/completions/rnicd"), words))
		require.Equal(t, want, strings.TrimSpace(strings.Split(out, "  ")[0]), words)
	}
}

// dropIns are the changes of the unit in docs/examples/systemd.
func dropIns(t *testing.T) (paths []string) {
	t.Helper()
	paths = must(filepath.Glob(filepath.Join(repository, "docs/examples/systemd/*.conf")))(t)
	require.NotEmpty(t, paths)
	return paths
}

// newerKeys are what systemd before 254 says of keys that it does not know.
var newerKeys = regexp.MustCompile(
	`(?m)^.*Unknown key '?(name '|)Restart(Steps|MaxDelaySec)' in section .Service., ignoring\.\n`)

// A unit that fails to restart, or to stop, leaves the package configured, or removed.
func TestMaintainerScripts(t *testing.T) {
	need(t, "unshare", "util-linux")
	stubs := t.TempDir()
	for _, name := range []string{"systemctl", "deb-systemd-invoke", "systemd-sysusers",
		"systemd-tmpfiles"} {
		text := "#!/bin/sh\necho " + name +
			" \"$@\"\ncase $name$* in *restart*|*stop*|*daemon-reload*|*disable*) exit 1;; esac\n"
		require.NoError(t, os.WriteFile(filepath.Join(stubs, name), []byte(text), 0o755))
	}
	for _, tc := range []struct{ script, args, want string }{
		{"postinst", "configure 0.0.1",
			"deb-systemd-invoke try-restart rnicd-switch.service rnicd.service\n"},
		{"postinst", "configure", "systemctl daemon-reload\n"},
		{"prerm", "remove", "deb-systemd-invoke stop rnicd.service rnicd-switch.service\n"},
		{"postrm", "remove", "systemctl daemon-reload\n"},
	} {
		// A /run of its own, in which systemd seems to run.
		script := "mount -t tmpfs none /run && mkdir -p /run/systemd/system && PATH=" + stubs +
			":$PATH DPKG_ROOT= exec sh " +
			filepath.Join(repository, "packaging/debian", tc.script) + " " + tc.args
		out := outputOf(t, exec.Command("unshare", "-m", "sh", "-c", script))
		require.Contains(t, out, tc.want, tc.script)
	}
}

// systemd knows everything that the units say, with each of the drop-ins too, finds their
// program, and thinks them confined; those who write the sysusers' and tmpfiles' lines are
// understood.
func TestUnit(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	need(t, "systemd-analyze", "systemd")
	for _, dropIn := range append([]string{"", "switch"}, dropIns(t)...) {
		service := "rnicd.service"
		if dropIn == "switch" {
			service, dropIn = "rnicd-switch.service", ""
		}
		root := t.TempDir()
		install(t, "install", root, "/usr")
		// What the unit depends on is the system's.
		for _, unit := range []string{"sysinit.target", "basic.target", "shutdown.target",
			"network-online.target", "multi-user.target", "system.slice"} {
			path := filepath.Join(root, "usr/lib/systemd/system", unit)
			text := "[Unit]\nDescription=" + unit + "\n"
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "bin/kill"), nil, 0o755))
		exposure := "22"
		if dropIn != "" {
			dir := filepath.Join(root, "etc/systemd/system/rnicd.service.d")
			require.NoError(t, os.MkdirAll(dir, 0o755))
			text := readFile(t, dropIn)
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(dropIn)), []byte(text), 0o644))
			if strings.Contains(text, "CAP_SYS_ADMIN") {
				exposure = "40"
			}
		}
		out := outputOf(t, exec.Command("systemd-analyze", "--root="+root, "--man=no", "verify",
			service))
		require.Empty(t, newerKeys.ReplaceAllString(out, ""), dropIn)
		outputOf(t, exec.Command("systemd-analyze", "--root="+root, "--offline=yes",
			"--threshold="+exposure, "--no-pager", "security", service))
	}
	root := t.TempDir()
	install(t, "install", root, "/usr")
	outputOf(t, exec.Command("systemd-sysusers", "--root="+root, "rnicd.conf"))
	passwd := readFile(t, filepath.Join(root, "etc/passwd"))
	group := regexp.MustCompile(
		`(?m)^rnicd:x:\d+:(\d+):rnicd, a software RNIC:/var/lib/rnicd:/usr/sbin/nologin$`).
		FindStringSubmatch(passwd)
	require.NotNil(t, group, "%s", passwd)
	require.Regexp(t, `(?m)^rnicd-switch:x:\d+:`+group[1]+`:rnicd switch:/:/usr/sbin/nologin$`,
		passwd, "its group reads the configuration")
}

// allowed are the names of system calls in the unit's filter.
func allowed(t *testing.T, set string) (calls []string) {
	t.Helper()
	out := must(exec.Command("systemd-analyze", "--no-pager", "syscall-filter", set).Output())(t)
	for line := range strings.Lines(string(out)) {
		switch name := strings.TrimSpace(line); {
		case name == "" || name == set || strings.HasPrefix(name, "#"):
		case strings.HasPrefix(name, "@"):
			calls = append(calls, allowed(t, name)...)
		default:
			calls = append(calls, name)
		}
	}
	return calls
}

// filter are the system calls that a unit allows.
func filter(t *testing.T, unit string) []string {
	t.Helper()
	need(t, "strace", "strace")
	need(t, "systemd-analyze", "systemd")
	text := readFile(t, filepath.Join(repository, "packaging/systemd", unit))
	set := regexp.MustCompile(`(?m)^SystemCallFilter=(\S+)$`).FindStringSubmatch(text)
	require.NotNil(t, set)
	for _, key := range []string{
		// memory is locked, clients' regions and what vfio reaches among it
		"LimitMEMLOCK=infinity",
		"StartLimitIntervalSec=0", "Restart=on-failure", // what it waits for may come late
	} {
		require.Contains(t, text, "\n"+key+"\n")
	}
	calls := allowed(t, set[1])
	require.Greater(t, len(calls), 200)
	return calls
}

// traced starts the program under strace; trace is where the calls are. What is made all the time
// is left out: it is in @default and @basic-io.
func (ns *namespace) traced(t *testing.T, args ...string) (p *process, trace string) {
	t.Helper()
	trace = filepath.Join(t.TempDir(), "calls")
	return ns.Start(t, exec.Command("strace", append([]string{
		"-f", "-qq", "--seccomp-bpf", "-o", trace,
		"-e", "trace=!read,readv,write,writev,futex,nanosleep,epoll_pwait,sched_yield", programPath(t),
	}, args...)...)), trace
}

// onlyAllowed wants all calls of a trace to be allowed, and some to be there.
func onlyAllowed(t *testing.T, trace string, calls []string, some ...string) {
	t.Helper()
	text := readFile(t, trace)
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(\w+)\(`).FindAllStringSubmatch(text, -1) {
		seen[m[1]] = true
	}
	for _, call := range some {
		require.True(t, seen[call], "%s: %v", call, seen)
	}
	for call := range seen {
		require.True(t, slices.Contains(calls, call), "the unit's filter does not have %s", call)
	}
}

// The unit's filter lets all system calls pass that the daemon makes in its life: a TAP, memif and
// sockets, connections, a reload, a drain.
func TestUnitAllowsTheDaemonsCalls(t *testing.T) {
	calls := filter(t, "rnicd.service")
	ns := newNamespace(t)
	socket := filepath.Join(t.TempDir(), "memif.sock")
	path := configured(t, example(t)+"[[port]]\nname = \"shared\"\ndriver = \"memif\"\nrole = "+
		"\"server\"\nsocket = \""+
		socket+"\"\naddresses = [\"10.7.0.1/24\"]\ndad = \"off\"\n")
	server, trace := ns.traced(t, "serve", "--config", path)
	server.Expect(t, 1, "msg=ready ")
	ns.succeeds(t, "perf write lat 10.9.0.1:7200 -n 3 --timeout 60s")
	ns.succeeds(t, "perf write lat 10.7.0.1:7200 -n 3 --timeout 60s --pmd memif --socket "+socket+
		" --addr 10.7.0.2/24 --dad quick")
	f := randomFile(t, 1<<20)
	ns.succeeds(t, "put --timeout 60s "+f.path+" 127.0.0.1")
	daemon := childOf(t, server.PID())
	require.NoError(t, exec.Command("kill", "-HUP", daemon).Run())
	server.Expect(t, 1, "msg=reloaded ")
	require.NoError(t, exec.Command("kill", "-TERM", daemon).Run())
	require.Equal(t, 0, server.Wait(t), "%s", server)
	onlyAllowed(t, trace, calls, "ioctl", "accept4", "mlock", "userfaultfd")
}

// As does that of the switch: a TAP, a thread with a CPU of its own, programs that come and are
// killed, being asked, a reload.
func TestUnitAllowsTheSwitchsCalls(t *testing.T) {
	calls := filter(t, "rnicd-switch.service")
	ns := newNamespace(t)
	text, socket := switchOfGuide(t)
	text, asked := seenAt(t, strings.Replace(text, "[switch]", "[switch]\ncores = \"0\"", 1))
	server, trace := ns.traced(t, "switch", "--config", configured(t, text))
	s := &switched{namespace: ns, process: server, socket: socket}
	s.Expect(t, 1, "msg=ready ")
	store := s.program(t, "serve --region 64MiB", 1, "10.9.0.1/24")
	store.Expect(t, 1, "^ready ")
	f := randomFile(t, 1<<20)
	succeeded(t, s.program(t, "put --timeout 60s", 2, "10.9.0.2/24", f.path, "10.9.0.1:7174"),
		f, s.process)
	store.Signal(t, syscall.SIGKILL)
	s.Expect(t, 2, "msg=detached ")
	s.ask(t, 0, "--socket", asked)
	require.Contains(t, s.scrape(t, "127.0.0.1:9175"), "rnicd_switch_healthy 1")
	pid := childOf(t, server.PID())
	for signal, line := range map[string]string{"-HUP": "msg=reloaded ", "-USR1": "^thread 0 "} {
		require.NoError(t, exec.Command("kill", signal, pid).Run())
		s.Expect(t, 1, line)
	}
	require.NoError(t, exec.Command("kill", "-TERM", pid).Run())
	require.Equal(t, 0, s.Wait(t), "%s", s.process)
	onlyAllowed(t, trace, calls, "ioctl", "accept4", "sched_setaffinity", "recvmsg", "mlock",
		"userfaultfd")
}

// childOf is the process that another one has started.
func childOf(t *testing.T, pid int) string {
	t.Helper()
	return strings.TrimSpace(readFile(t, fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))
}

// debian makes the packages, as version 0.0.1: rnicd, and, with the libraries, rnicd-verbs.
func debian(t *testing.T) (paths []string) {
	t.Helper()
	need(t, "dpkg-shlibdeps", "dpkg-dev")
	cmd := exec.Command("packaging/deb.sh")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "PROGRAM="+programPath(t), "LIBRARIES="+librariesPath(t),
		"PORTABLE="+portablePath(t), "OUT="+t.TempDir(), "DEB_VERSION=0.0.1",
		"SOURCE_DATE_EPOCH=1700000000")
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	return strings.Fields(string(out))
}

// emptySystem is one for dpkg to install packages into.
func emptySystem(t *testing.T) (root string, dpkg func(args ...string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "needs root to install a package")
	}
	root = t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers",
		"etc", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
	return root, func(args ...string) {
		t.Helper()
		outputOf(t, exec.Command("dpkg", append([]string{"--root=" + root,
			"--force-script-chrootless", "--force-depends", "--log=/dev/null"}, args...)...))
	}
}

// The package has what make install installs, depends on what the program is linked with, and has
// nothing that lintian minds where that is there. Installed, changed, upgraded, removed and
// purged by dpkg, below a root of its own, the configuration stays until the purge.
func TestDebianPackage(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	first := debian(t)[0]
	run := func(name string, args ...string) string {
		return outputOf(t, exec.Command(name, args...))
	}
	require.Equal(t, "0.0.1\n", run("dpkg-deb", "-f", first, "Version"))
	depends := run("dpkg-deb", "-f", first, "Depends")
	require.Contains(t, depends, "libc6 (>= ")
	require.Equal(t, program.dpdk, strings.Contains(depends, "librte-eal"), depends)
	unpacked, tree := t.TempDir(), t.TempDir()
	run("dpkg-deb", "-x", first, unpacked)
	installWith(t, librariesPath(t), "install", tree, "/usr")
	files := installed(t, unpacked)
	for _, f := range installed(t, tree) {
		require.Contains(t, files, f)
	}
	if _, err := exec.LookPath("lintian"); err == nil && !testing.Short() { // it takes a while
		require.Empty(t, run("lintian", "--allow-root", "--fail-on", "error,warning", first))
	}

	root, dpkg := emptySystem(t)
	next := t.TempDir() // the same with another version
	run("dpkg-deb", "-R", first, filepath.Join(next, "tree"))
	run("sed", "-i", "s/^Version: .*/Version: 0.0.2/", filepath.Join(next, "tree/DEBIAN/control"))
	second := filepath.Join(next, "rnicd.deb")
	run("dpkg-deb", "-Zgzip", "-z1", "-b", filepath.Join(next, "tree"), second)
	config := filepath.Join(root, "etc/rnicd/rnicd.toml")
	dpkg("--install", first)
	described := filepath.Join(root, "etc/cdi/rnicd.json")
	if librariesPath(t) != "" {
		require.Contains(t, readFile(t, described), `"hostPath": "/usr/lib/rnicd"`)
		require.NotContains(t, readFile(t, described), "/tmp/")
	}
	passwd := readFile(t, filepath.Join(root, "etc/passwd"))
	require.Contains(t, passwd, "rnicd:x:")
	info := must(os.Stat(config))(t)
	require.Equal(t, fs.FileMode(0o640), info.Mode(), "it may hold secrets")
	mine := "# mine\n"
	require.NoError(t, os.WriteFile(config, []byte(mine), 0o640))
	dpkg("--install", second)
	require.Equal(t, "ii  0.0.2", run("dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"),
		"-W", "-f=${db:Status-Abbrev} ${Version}", "rnicd"))
	require.Equal(t, mine, readFile(t, config))
	dpkg("--remove", "rnicd")
	require.NoDirExists(t, filepath.Join(root, "usr/lib/rnicd"))
	require.FileExists(t, config)
	require.NoFileExists(t, filepath.Join(root, "usr/bin/rnicd"))
	require.NoFileExists(t, described)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/cdi"), 0o755))
	for _, name := range []string{"rnicd-switch.json", "rnicd-switch-secret.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "run/cdi", name), nil, 0o600))
	}
	dpkg("--purge", "rnicd")
	require.NoDirExists(t, filepath.Join(root, "etc/rnicd"))
	require.NoDirExists(t, filepath.Join(root, "etc/cdi"))
	require.NoDirExists(t, filepath.Join(root, "run/cdi"))
	require.Empty(t, installed(t, filepath.Join(root, "run")))
}
