package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// image is what containers in tests run: programs of this machine with their libraries, as nothing
// can be fetched.
const image = "localhost/rnicd-test"

// engine is podman in namespaces of its own, with its own storage and folders of CDI files, as root
// or as a user. All of it, containers too, ends with the test.
type engine struct {
	*namespace
	dir   string // which every user may read
	lib   string // of the libraries, with an rnicd that runs in a container
	enter []string
	env   []string

	holder *process // of the namespaces
	ended  sync.Once
}

// portable is an rnicd that needs nothing of a container, built once.
var portable struct {
	sync.Once
	path string
	err  error
}

func portablePath(t *testing.T) string {
	t.Helper()
	programPath(t)
	portable.Do(func() {
		portable.path = filepath.Join(program.dir, "portable")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", portable.path, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			portable.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, portable.err)
	return portable.path
}

// newEngine makes one of the user with this number.
func newEngine(t *testing.T, uid int) *engine {
	t.Helper()
	need(t, "podman", "podman")
	need(t, "rping", "rdmacm-utils")
	need(t, "ib_write_bw", "perftest")
	built := librariesPath(t)
	if built == "" {
		skip.Missing(t, "needs gcc, libibverbs-dev and librdmacm-dev")
	}
	e := &engine{namespace: newNamespace(t), dir: openDir(t)}
	e.lib = filepath.Join(e.dir, "lib")
	require.NoError(t, os.CopyFS(e.lib, os.DirFS(built)))
	text := must(os.ReadFile(portablePath(t)))(t)
	require.NoError(t, os.WriteFile(filepath.Join(e.lib, "rnicd"), text, 0o755))

	// A PID namespace, with which containers end; nothing of the host's /run.
	e.holder = e.Start(t, exec.Command("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child",
		"sh", "-ec", `mount -t tmpfs tmpfs /run
		mount -t tmpfs tmpfs /dev/shm
		mkdir /run/cdi
		if [ -d /etc/cdi ]; then mount -t tmpfs tmpfs /etc/cdi; fi
		echo ready
		exec sleep infinity`))
	if line, ok := e.holder.Await(t, 1, "^ready$"); !ok {
		skip.Missing(t, "needs mount and PID namespaces: %s%s", line, e.holder)
	}
	e.enter = []string{"nsenter", "-m", "-p", "-t", childOf(t, e.holder.PID())}
	user := filepath.Join(e.dir, "user")
	for _, dir := range []string{user, user + "/run", user + "/storage", user + "/tmp"} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, uid, uid))
	}
	config := filepath.Join(e.dir, "containers.conf")
	require.NoError(t, os.WriteFile(config,
		[]byte("[containers]\ndefault_ulimits = ["+limits(t)+"]\n"), 0o644))
	e.env = []string{"HOME=" + user, "XDG_RUNTIME_DIR=" + user + "/run", "TMPDIR=" + user + "/tmp",
		"CONTAINERS_CONF=" + config}

	tar := filepath.Join(e.dir, "image.tar")
	makeImage(t, tar)
	e.enterAs(t, uid)
	e.podman(t, "import", tar, image)
	return e
}

// openDir is a directory that every user may enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "rnicd-containers-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// limits are the ulimits of this process: podman's own may be more than it may set.
func limits(t *testing.T) string {
	t.Helper()
	var all []string
	for name, what := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var l unix.Rlimit
		require.NoError(t, unix.Getrlimit(what, &l))
		n := int64(min(l.Max, 4096))
		all = append(all, fmt.Sprintf("%q", fmt.Sprintf("%s=%d:%d", name, n, n)))
	}
	return strings.Join(all, ", ")
}

// enterAs makes commands that follow those of the user, for whom podman is one with flags.
func (e *engine) enterAs(t *testing.T, uid int) {
	t.Helper()
	if uid != 0 {
		id := strconv.Itoa(uid)
		e.enter = append(e.enter, "setpriv", "--reuid="+id, "--regid="+id, "--clear-groups")
	}
	podman := must(exec.LookPath("podman"))(t)
	bin := filepath.Join(e.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "podman"), fmt.Appendf(nil, `#!/bin/sh
exec %s --root %s/user/storage --runroot %[2]s/user/run --storage-driver vfs \
    --cgroup-manager cgroupfs "$@"
`, podman, e.dir), 0o755))
	e.env = append(e.env, "PATH="+bin+":"+os.Getenv("PATH"))
}

var linkedFile = regexp.MustCompile(`/\S+`)

// makeImage writes a file system of some programs.
func makeImage(t *testing.T, tar string) {
	t.Helper()
	root := t.TempDir()
	copied := func(from, to string) {
		text := must(os.ReadFile(from))(t)
		to = filepath.Join(root, to)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, 0o755))
	}
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev", "run"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, name := range []string{"sh", "env", "id", "cat", "rping", "ib_write_bw", "ibv_devinfo",
		"ibv_rc_pingpong"} {
		path, err := exec.LookPath(name)
		if err != nil {
			skip.Missing(t, "needs %s: apt-get install rdmacm-utils perftest ibverbs-utils", name)
		}
		copied(path, filepath.Join("bin", name))
		out := outputOf(t, exec.Command("ldd", path))
		for _, lib := range linkedFile.FindAllString(out, -1) {
			copied(lib, lib)
		}
	}
	// pthread_exit loads it
	gcc := strings.TrimSpace(outputOf(t, exec.Command("gcc", "-print-file-name=libgcc_s.so.1")))
	copied(gcc, "lib/"+filepath.Base(gcc))
	outputOf(t, exec.Command("tar", "-C", root, "--owner=0", "--group=0", "-cf", tar, "."))
	require.NoError(t, os.Chmod(tar, fs.FileMode(0o644)))
}

// start starts a command of podman's.
func (e *engine) start(t *testing.T, args ...string) *process {
	t.Helper()
	return e.command(t, append([]string{filepath.Join(e.dir, "bin/podman")}, args...)...)
}

// command starts a command as the engine's user.
func (e *engine) command(t *testing.T, args ...string) *process {
	t.Helper()
	args = append(append([]string{}, e.enter...), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = e.env, e.dir
	p := e.Start(t, cmd)
	t.Cleanup(func() { e.end(t) }) // what it has started keeps its pipes: they are waited for
	return p
}

// end removes all containers, and ends whatever runs in the namespaces.
func (e *engine) end(t *testing.T) {
	e.ended.Do(func() {
		p := e.start(t, "rm", "--all", "--force", "--time", "0")
		p.Wait(t)
		e.holder.Signal(t, syscall.SIGKILL)
	})
}

// podman runs a command of the engine that must succeed.
func (e *engine) podman(t *testing.T, args ...string) string {
	t.Helper()
	p := e.start(t, args...)
	require.Zero(t, p.Wait(t), "%v: %s", args, p)
	return p.String()
}

// run starts a container. Its device is given first, then the engine's flags, then its command.
func (e *engine) run(t *testing.T, device, flags, command string) *process {
	t.Helper()
	args := []string{"run", "--rm", "--env", "RNICD_VERBOSE=1"}
	for d := range strings.FieldsSeq(device) {
		args = append(args, "--device", "rnicd.io/rnic="+d)
	}
	args = append(append(args, strings.Fields(flags)...), image)
	return e.start(t, append(args, strings.Fields(command)...)...)
}

// cdi runs rnicd cdi where the engine looks for its files.
func (e *engine) cdi(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{programPath(t), "cdi", "write", "--dir", "/run/cdi", "--lib", e.lib},
		args...)
	cmd := exec.Command(e.enter[0], append(append([]string{}, e.enter[1:5]...), args...)...)
	p := e.Start(t, cmd)
	require.Zero(t, p.Wait(t), "%s", p)
}

// converse has two containers ping each other; both verify every octet.
func (e *engine) converse(t *testing.T, server, client *process) {
	t.Helper()
	require.Zero(t, client.Wait(t), "%s\n%s", client, server)
	require.Len(t, client.Lines("^ping data: rdma-ping-"), 4, "%s", client)
	require.Zero(t, server.Wait(t), "%s\n%s", server, client)
	require.Len(t, server.Lines("^server ping data: rdma-ping-"), 4, "%s", server)
}

const (
	pingServer = "rping -s -C 4 -v -V -a "
	pingClient = "rping -c -C 4 -v -V -a "
)

// confined is how little a container may be given.
const confined = "--network none --cap-drop all --read-only --security-opt no-new-privileges "

// users are whom the engine runs as.
var users = map[string]int{"root": 0, "rootless": 65534}

// The containers of a pod without network reach each other over its loopback, as root and as a
// user: programs that load the libraries by the environment, those that rnicd run starts, and those
// that want a RoCE adapter.
func TestPod(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, uid)
			e.cdi(t)
			e.podman(t, "pod", "create", "--name", "pod", "--network", "none")
			flags := "--pod pod --cap-drop all --read-only --env LD_LIBRARY_PATH=/its/own"
			for _, way := range []struct{ device, before string }{
				{"sockets", ""}, {"roce", ""}, {"tools", "/usr/lib/rnicd/rnicd run -- "},
			} {
				server := e.run(t, way.device, flags, way.before+pingServer+"127.0.0.1")
				server.Expect(t, 1, "listening at ")
				e.converse(t, server, e.run(t, way.device, flags, way.before+pingClient+"127.0.0.1"))
			}
			seen := e.run(t, "sockets roce", flags, "ibv_devinfo")
			require.Zero(t, seen.Wait(t), "%s", seen)
			require.Len(t, seen.Lines(`transport:\s+InfiniBand`), 1, "%s", seen)
			env := e.run(t, "tools", flags, "/usr/lib/rnicd/rnicd run -- env")
			require.Zero(t, env.Wait(t), "%s", env)
			require.Len(t, env.Lines("^LD_LIBRARY_PATH=/usr/lib/rnicd/standin:/its/own$"), 1, "%s", env)
			server := e.run(t, "sockets", flags, "ib_write_bw -R -n 100 -s 65536")
			server.Expect(t, 1, "listening at ")
			client := e.run(t, "sockets", flags, "ib_write_bw -R -n 100 -s 65536 127.0.0.1")
			require.Zero(t, client.Wait(t), "%s\n%s", client, server)
			require.Zero(t, server.Wait(t), "%s\n%s", server, client)
		})
	}
}

// The command of README runs two containers.
func TestExampleOfContainers(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	e := newEngine(t, 0)
	e.cdi(t)
	script := must(filepath.Abs(filepath.Join(repository, "docs/examples/containers/pair.sh")))(t)
	p := e.command(t, script, image)
	require.Zero(t, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^ping data: rdma-ping-"), 3, "%s", p)
	require.Equal(t, "", e.podman(t, "ps", "--all", "--quiet"))
	p = e.command(t, script)
	require.Equal(t, 2, p.Wait(t), "%s", p)
	require.Contains(t, p.String(), "usage: pair.sh IMAGE")
}

// Two containers without any network, right or writable file reach each other as programs of a
// switch, as whom the switch admits, also when it starts again between. Whoever is not admitted has
// no device, and a user's engine does not see a program that has a secret.
func TestContainersOfASwitch(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, uid)
			programs := filepath.Join(e.dir, "programs")
			require.NoError(t, os.Mkdir(programs, 0o755))
			inside, admitted := "", uid // of the server's container
			if uid == 0 {
				inside, admitted = " --user 1234:1234", 1234
			}
			file := filepath.Join(e.dir, "switch.toml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
[switch]
socket = "%s/switch.sock"
mode = "0666"
[control]
socket = "%s/control.sock"
[[program]]
name = "store"
id = 1
uids = [%d]
addresses = ["10.9.0.1"]
[[program]]
name = "reader"
id = 2
addresses = ["10.9.0.2"]
[[program]]
name = "writer"
id = 3
secret = "wonderful"
addresses = ["10.9.0.3"]
`, programs, e.dir, admitted), 0o600))
			starts := func() *process {
				p := e.rnicd(t, "switch", "--config", file)
				p.Expect(t, 1, "msg=ready ")
				return p
			}
			s := starts()
			e.cdi(t)
			e.cdi(t, "--config", file)
			serve := func() *process {
				p := e.run(t, "store", confined+inside, pingServer+"10.9.0.1")
				p.Expect(t, 1, "listening at ")
				return p
			}
			e.converse(t, serve(), e.run(t, "reader", confined, pingClient+"10.9.0.1"))

			server := serve()
			s.Signal(t, syscall.SIGTERM)
			require.Zero(t, s.Wait(t), "%s", s)
			s = starts()
			s.Expect(t, 1, "msg=attached program=store ")
			e.converse(t, server, e.run(t, "reader roce", confined, pingClient+"10.9.0.1"))

			writer := func() *process { return e.run(t, "writer", confined, pingClient+"10.9.0.1") }
			if uid != 0 {
				client := writer()
				require.NotZero(t, client.Wait(t), "%s", client)
				require.NotEmpty(t, client.Lines("rnicd.io/rnic=writer"), "%s", client)
				return
			}
			e.converse(t, serve(), writer())
			client := e.run(t, "store", confined+"--user 4321", pingServer+"10.9.0.1")
			require.NotZero(t, client.Wait(t), "%s", client)
			s.Expect(t, 1, "msg=refused .*uid=4321")
		})
	}
}
