package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
)

// fakeLibraries is a folder that has files of the libraries' names.
func fakeLibraries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"librnicd_verbs.so", "librnicd_engine.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	return dir
}

// All places are there, and each answers with the CDI device. Libraries that go make them
// unhealthy, which all who list them get. A kubelet that starts again is registered with again; the
// plugin's end leaves no socket.
func TestSockets(t *testing.T) {
	k := newKubelet(t)
	o := options{sockets: 3, lib: fakeLibraries(t), cdiDir: t.TempDir(), kubelet: k.dir}
	stop := offer(t, o)
	const resource = "rnicd.io/sockets"
	r := k.await(resource)[resource]
	r.until("Healthy", "0", "1", "2")
	second := k.connect("rnicd-sockets.sock")
	for _, ids := range [][]string{{"0"}, {"2", "1"}} {
		a := must(r.allocate(ids...))(t)
		require.Len(t, a.CdiDevices, 1)
		require.Equal(t, "rnicd.io/rnic=sockets", a.CdiDevices[0].Name)
		require.Empty(t, a.Envs)
		require.Empty(t, a.Mounts)
	}
	require.FileExists(t, filepath.Join(o.cdiDir, "rnicd.json"))
	_, err := serveOnce(t.Context(), t.TempDir(), &plugin{pool: newPool("none", false)})
	require.ErrorContains(t, err, "kubelet.sock: no such file", "what is tried again")
	_, err = r.allocate("3")
	require.ErrorContains(t, err, "rnicd.io/sockets has no device 3 any more")

	engine := filepath.Join(o.lib, "librnicd_engine.so")
	require.NoError(t, os.Rename(engine, engine+".away"))
	r.until("Unhealthy", "0", "1", "2")
	second.until("Unhealthy", "0", "1", "2")
	_, err = r.allocate("1")
	require.ErrorContains(t, err, "device 1 of rnicd.io/sockets: stat "+engine)
	require.NoError(t, os.Rename(engine+".away", engine))
	r.until("Healthy", "0", "1", "2")

	k.server.Stop()
	k.start()
	r = k.await(resource)[resource]
	r.until("Healthy", "0", "1", "2")
	require.NoError(t, os.Remove(filepath.Join(k.dir, "rnicd-sockets.sock")))
	r = k.await(resource)[resource]
	r.until("Healthy", "0", "1", "2")

	stop()
	_, err = r.lists.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoFileExists(t, filepath.Join(k.dir, "rnicd-sockets.sock"))
}

// CDI files that somebody removes or changes are written again; with a folder that cannot be
// written devices are of no use.
func TestFilesOfSockets(t *testing.T) {
	dir, host := t.TempDir(), cdi.Host{Libraries: fakeLibraries(t)}
	path := filepath.Join(dir, "rnicd.json")
	require.Empty(t, sockets(host, dir, 1)[0].trouble)
	want := must(os.ReadFile(path))(t)
	for _, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{}"), 0o600) },
		func() error { return os.RemoveAll(dir) },
	} {
		require.NoError(t, spoil())
		require.Empty(t, sockets(host, dir, 1)[0].trouble)
		text := must(os.ReadFile(path))(t)
		require.Equal(t, want, text)
	}
	require.Contains(t, sockets(host, path, 1)[0].trouble, "rnicd.json: not a directory")
	require.NoDirExists(t, sockets(host, "", 1)[0].trouble)
}

// A second plugin waits for the end of the first.
func TestTwoPlugins(t *testing.T) {
	k := newKubelet(t)
	said := logged(t, "another plugin of rnicd runs")
	o := options{sockets: 1, lib: fakeLibraries(t), cdiDir: t.TempDir(), kubelet: k.dir}
	stop := offer(t, o)
	first := k.await("rnicd.io/sockets")["rnicd.io/sockets"]
	first.until("Healthy", "0")
	o.sockets = 2
	offer(t, o)
	said.wait()
	require.Empty(t, k.registered)
	stop()
	k.await("rnicd.io/sockets")["rnicd.io/sockets"].until("Healthy", "0", "1")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, run(ctx, o), "one that waits ends")
}

// The end of the plugin waits for what it has to answer, but not for ever.
func TestEndDuringAllocate(t *testing.T) {
	for _, answers := range []bool{true, false} {
		k, begun := newKubelet(t), logged(t, "registered")
		stop := offer(t, options{sockets: 1, lib: fakeLibraries(t), cdiDir: t.TempDir(), kubelet: k.dir})
		r := k.await("rnicd.io/sockets")["rnicd.io/sockets"]
		r.until("Healthy", "0")
		begun.wait() // else that line waits for the one that is held back, and the end for it
		said := logged(t, "allocated")
		said.hold = make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := r.allocate("0")
			ended <- err
		}()
		said.wait()
		go stop()
		_, err := r.lists.Recv()
		require.ErrorIs(t, err, io.EOF)
		if answers {
			close(said.hold)
			require.NoError(t, <-ended)
		} else {
			require.ErrorContains(t, <-ended, "Unavailable")
			close(said.hold)
		}
		stop()
	}
}

// Without CDI the answer has all that the device has.
func TestWithoutCDI(t *testing.T) {
	k, lib := newKubelet(t), fakeLibraries(t)
	offer(t, options{sockets: 1, lib: lib, noCDI: true, kubelet: k.dir})
	r := k.await("rnicd.io/sockets")["rnicd.io/sockets"]
	r.until("Healthy", "0")
	a := must(r.allocate("0"))(t)
	require.Empty(t, a.CdiDevices)
	require.Equal(t, map[string]string{"LD_PRELOAD": "/usr/lib/rnicd/librnicd_verbs.so",
		"LD_LIBRARY_PATH": "/usr/lib/rnicd/standin"}, a.Envs)
	require.Len(t, a.Mounts, 1)
	require.Equal(t, lib, a.Mounts[0].HostPath)
	require.Equal(t, "/usr/lib/rnicd", a.Mounts[0].ContainerPath)
	require.True(t, a.Mounts[0].ReadOnly)
}

// configure writes a switch's configuration with n programs and returns their names.
func configure(t *testing.T, dir string, n int) (file string, names []string) {
	t.Helper()
	text := fmt.Sprintf("[switch]\nsocket = %q\n[control]\nsocket = %q\n", dir+"/programs/switch.sock",
		dir+"/control.sock")
	for i := range n {
		names = append(names, "p"+strconv.Itoa(i))
		text += fmt.Sprintf("[[program]]\nname = %q\nid = %d\nsecret = \"s%d\"\naddresses = [\"10.9.0.%d\"]\n",
			names[i], i, i, i+1)
	}
	file = filepath.Join(dir, "switch.toml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file, names
}

// Programs are healthy while the switch has them: neither before it runs, nor when it has ended. A
// program that the file adds is there once the switch has taken it; a file that is wrong changes
// nothing. A container is one program.
func TestMemif(t *testing.T) {
	k, dir := newKubelet(t), shortDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "programs"), 0o755))
	file, names := configure(t, dir, 2)
	o := options{file: file, lib: fakeLibraries(t), cdiDir: t.TempDir(), kubelet: k.dir}
	offer(t, o)
	const resource = "rnicd.io/memif"
	r := k.await(resource)[resource]
	r.until("Unhealthy", names...)
	_, err := r.allocate("p0")
	require.ErrorContains(t, err,
		"device p0 of rnicd.io/memif: "+dir+"/control.sock: no switch answers")

	s := start(t, filepath.Join(binaries(t), "rnicd"), "switch", "--config", file)
	s.says("msg=ready ")
	r.until("Healthy", names...)
	a, err := r.allocate("p1")
	require.NoError(t, err)
	require.Equal(t, "rnicd.io/rnic=p1", a.CdiDevices[0].Name)
	_, err = r.allocate("p0", "p1")
	require.ErrorContains(t, err, "2 of rnicd.io/memif for one container: it can be one program")
	info, err := os.Stat(filepath.Join(o.cdiDir, "rnicd-switch-secret.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	_, names = configure(t, dir, 3)
	for health := map[string]string{}; health["p2"] != "Unhealthy"; health = r.next() {
		require.NotContains(t, health, "p2")
	}
	_, err = r.allocate("p2")
	require.ErrorContains(t, err, "the switch has not taken the program yet: reload it")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	r.until("Healthy", names...)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("id = 1\n"), []byte("id = 9\n"), 1)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	for health := map[string]string{}; health["p1"] != "Unhealthy"; health = r.next() {
	}
	_, err = r.allocate("p1")
	require.ErrorContains(t, err, "the switch has the program as it was before: reload it")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	r.until("Healthy", names...)

	require.NoError(t, os.WriteFile(file, []byte("[switch"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, s.ends(), "%s", s)
	r.until("Unhealthy", names...)
	configure(t, dir, 1)
	r.until("Unhealthy", names[:1]...)
}

// The CDI files of programs are written again as well. Files of ours that have the same devices, by
// which no engine would take either, are removed; all others stay. Without CDI there are none.
func TestFilesOfPrograms(t *testing.T) {
	dir, cdiDir := shortDir(t), t.TempDir()
	file, _ := configure(t, dir, 2)
	host := cdi.Host{Libraries: fakeLibraries(t)}
	for name, kind := range map[string]string{"rnicd-node.json": "rnicd.io/rnic p1",
		"rnicd-other.json": "rnicd.io/rnic q", "nvidia.json": "nvidia.com/gpu p1"} {
		kind, device, _ := strings.Cut(kind, " ")
		require.NoError(t, os.WriteFile(filepath.Join(cdiDir, name), fmt.Appendf(nil,
			`{"cdiVersion": "0.3.0", "kind": %q, "devices": [{"name": %q}]}`, kind, device), 0o600))
	}
	list := func() (names []string) {
		entries := must(os.ReadDir(cdiDir))(t)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	p := &programs{host: host, file: file, dir: cdiDir}
	require.Contains(t, p.look(t.Context())[0].trouble, "no switch answers")
	want := []string{"nvidia.json", "rnicd-other.json", "rnicd-switch-secret.json"}
	require.Equal(t, want, list())
	require.NoError(t, os.Remove(filepath.Join(cdiDir, "rnicd-switch-secret.json")))
	p.look(t.Context())
	require.Equal(t, want, list())
	require.NoError(t, os.Chmod(cdiDir, 0o755))
	p.dir = file
	require.Contains(t, p.look(t.Context())[0].trouble, "not a directory")
	p = &programs{host: host, file: file}
	require.Contains(t, p.look(t.Context())[0].trouble, "no switch answers")
	require.Equal(t, want, list())
}

// What is wrong with the flags is said in a line; help is all of them.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-sockets 0":        "-sockets 0 and no -switch: there is nothing to offer",
		"-sockets -1":       "-sockets -1: want 0 to 10000",
		"-sockets x":        `invalid value "x" for flag -sockets: parse error; -help lists the flags`,
		"-lib lib":          "-lib lib: want an absolute path, the same on the node and here",
		"-switch a b":       "b: there are only flags; -help lists them",
		"-switch a -no-cid": "flag provided but not defined: -no-cid; -help lists the flags",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		require.EqualError(t, err, want)
	}
	_, err := parse([]string{"-device-plugins", "/" + strings.Repeat("d", 90)}, io.Discard)
	require.ErrorContains(t, err, "too long, a socket's path has at most 107 octets")
	o := must(parse([]string{"-no-cdi"}, io.Discard))(t)
	require.Empty(t, o.cdiDir)
}
