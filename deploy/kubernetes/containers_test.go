package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/rnicd/rnicd/internal/skip"
)

// runtime runs containers as containerd does below the kubelet: the plugin's answer is applied to
// an OCI specification, which runc runs.
type runtime struct {
	t     *testing.T
	dir   string
	cache *cdi.Cache // of the CDI files
}

func newRuntime(t *testing.T, cdiDir string) *runtime {
	t.Helper()
	for _, name := range []string{"runc", "rping", "ib_write_bw"} {
		if _, err := exec.LookPath(name); err != nil {
			skip.Missing(t, "needs %s: apt-get install runc rdmacm-utils perftest", name)
		}
	}
	cache := must(cdi.NewCache(cdi.WithSpecDirs(cdiDir), cdi.WithAutoRefresh(false)))(t)
	return &runtime{t: t, dir: shortDir(t), cache: cache}
}

// linked are the files that a program wants, after ldd.
var linked = regexp.MustCompile(`/\S+`)

// run starts a program of this machine in a container without rights, network and files that can be
// written, with what the answer gives it. beside is a container whose network it shares; empty:
// none.
func (r *runtime) run(name, beside string, a *v1beta1.ContainerAllocateResponse,
	args ...string) *process {
	r.t.Helper()
	bundle := filepath.Join(r.dir, name)
	root := filepath.Join(bundle, "root")
	require.NoError(r.t, os.MkdirAll(root, 0o755))
	path := must(exec.LookPath(args[0]))(r.t)
	libgcc, err := exec.Command("gcc", "-print-file-name=libgcc_s.so.1").Output() // pthread_exit's
	require.NoError(r.t, err)
	out, err := exec.Command("ldd", path, strings.TrimSpace(string(libgcc))).CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	spec := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{Args: append([]string{path}, args[1:]...), Cwd: "/",
			User: specs.User{UID: 1234, GID: 1234}, NoNewPrivileges: true,
			Env: []string{"PATH=/usr/bin:/bin", "RNICD_VERBOSE=1"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace},
			{Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}},
	}
	network := specs.LinuxNamespace{Type: specs.NetworkNamespace}
	if beside != "" {
		network.Path = "/proc/" + r.pid(beside) + "/ns/net"
	}
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, network)
	seen := map[string]bool{}
	for _, file := range append(linked.FindAllString(string(out), -1), path,
		strings.TrimSpace(string(libgcc))) {
		if file = strings.TrimSuffix(file, ":"); !seen[file] {
			seen[file] = true
			real := must(filepath.EvalSymlinks(file))(r.t)
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: file, Source: real, Type: "bind",
				Options: []string{"bind", "ro"}})
		}
	}
	r.apply(spec, a)
	text := must(json.Marshal(spec))(r.t)
	require.NoError(r.t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600))
	p := start(r.t, "runc", "--root", filepath.Join(r.dir, "state"), "run", "--bundle", bundle,
		"--pid-file", filepath.Join(bundle, "pid"), r.id(name))
	r.t.Cleanup(func() {
		_ = exec.Command("runc", "--root", filepath.Join(r.dir, "state"), "delete", "--force",
			r.id(name)).Run() // where it runs still
	})
	return p
}

// id is a container's, which the machine's cgroups know as well.
func (r *runtime) id(name string) string { return filepath.Base(r.dir) + "-" + name }

func (r *runtime) pid(name string) string {
	r.t.Helper()
	text := must(os.ReadFile(filepath.Join(r.dir, name, "pid")))(r.t)
	return string(text)
}

// apply makes an answer part of a container, as the kubelet and containerd do.
func (r *runtime) apply(spec *specs.Spec, a *v1beta1.ContainerAllocateResponse) {
	r.t.Helper()
	for key, value := range a.Envs {
		spec.Process.Env = append(spec.Process.Env, key+"="+value)
	}
	for _, m := range a.Mounts {
		options := []string{"rbind", "rprivate"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.ContainerPath, Source: m.HostPath,
			Type: "bind", Options: options})
	}
	var names []string
	for _, d := range a.CdiDevices {
		names = append(names, d.Name)
	}
	if names == nil {
		return
	}
	require.NoError(r.t, r.cache.Refresh())
	missing := must(r.cache.InjectDevices(spec, names...))(r.t)
	require.Empty(r.t, missing)
}

// converse has two containers ping each other, which verify every octet, and measure.
func (r *runtime) converse(kind, address string, shared bool,
	answer func(end int) *v1beta1.ContainerAllocateResponse) {
	r.t.Helper()
	for _, way := range []struct {
		name           string
		server, client []string
		want           string
	}{
		{"rping", []string{"rping", "-s", "-C", "4", "-v", "-V", "-a", address},
			[]string{"rping", "-c", "-C", "4", "-v", "-V", "-a", address}, "ping data: rdma-ping-3"},
		{"perftest", []string{"ib_write_bw", "-R", "-n", "100", "-s", "65536"},
			[]string{"ib_write_bw", "-R", "-n", "100", "-s", "65536", address}, " 65536      100 "},
	} {
		beside := ""
		server := r.run(kind+way.name+"-s", "", answer(0), way.server...)
		server.says("listening at ")
		if shared {
			beside = kind + way.name + "-s"
		}
		client := r.run(kind+way.name+"-c", beside, answer(1), way.client...)
		require.Zero(r.t, client.ends(), "%s\n%s", client, server)
		require.Contains(r.t, client.String(), way.want)
		require.Zero(r.t, server.ends(), "%s\n%s", server, client)
	}
}

// The kubelet's answers, by CDI and without, make containers that reach each other: in a pod, over
// its loopback; and as programs of a switch, without any network. Each is a user without rights.
func TestContainers(t *testing.T) {
	if os.Getuid() != 0 {
		skip.Missing(t, "needs root, as the kubelet's runtime does")
	}
	bin := binaries(t)
	for _, way := range []string{"cdi", "no-cdi"} {
		t.Run(way, func(t *testing.T) {
			k, dir, cdiDir := newKubelet(t), shortDir(t), t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "programs"), 0o755))
			file, _ := configure(t, dir, 2)
			text := must(os.ReadFile(file))(t)
			require.NoError(t, os.WriteFile(file,
				[]byte(strings.Replace(string(text), "[control]", "mode = \"0666\"\n[control]", 1)), 0o600))
			start(t, filepath.Join(bin, "rnicd"), "switch", "--config", file).says("msg=ready ")
			r := newRuntime(t, cdiDir)
			o := options{sockets: 2, file: file, lib: bin, cdiDir: cdiDir, noCDI: way == "no-cdi",
				kubelet: k.dir}
			if o.noCDI {
				o.cdiDir = ""
			}
			offer(t, o)
			resources := k.await("rnicd.io/sockets", "rnicd.io/memif")
			allocated := func(resource string, ids ...string) func(int) *v1beta1.ContainerAllocateResponse {
				resources[resource].until("Healthy", ids...)
				return func(end int) *v1beta1.ContainerAllocateResponse {
					return must(resources[resource].allocate(ids[end]))(t)
				}
			}
			r.converse("s", "127.0.0.1", true, allocated("rnicd.io/sockets", "0", "1"))
			r.converse("m", "10.9.0.1", false, allocated("rnicd.io/memif", "p0", "p1"))
		})
	}
}
