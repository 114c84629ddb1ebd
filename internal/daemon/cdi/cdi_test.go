package cdi

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

var host = Host{Libraries: "/opt/lib/rnicd"}

// parsed is a switch's configuration.
func parsed(t *testing.T, text string) *config.Switch {
	t.Helper()
	s, err := config.ParseSwitch("switch.toml", []byte(text), Drivers())
	require.NoError(t, err)
	return s
}

// valid is what every engine wants of a Spec: a version that has all its keys, edits in every
// device, variables with a value.
func valid(t *testing.T, spec *specs.Spec) {
	t.Helper()
	require.NoError(t, specs.ValidateVersion(spec))
	require.Equal(t, "rnicd.io/rnic", spec.Kind)
	require.NotEmpty(t, spec.Devices)
	for _, d := range spec.Devices {
		require.NotEmpty(t, d.ContainerEdits.Mounts, d.Name)
		for _, m := range d.ContainerEdits.Mounts {
			require.True(t, filepath.IsAbs(m.HostPath) && filepath.IsAbs(m.ContainerPath), "%+v", m)
			require.Contains(t, m.Options, "ro")
		}
		for _, v := range d.ContainerEdits.Env {
			require.Regexp(t, `^[A-Z_]+=.`, v)
		}
	}
}

// rnicEnv are the variables of a device that are rnicd's.
func rnicEnv(d specs.Device) []string {
	return slices.DeleteFunc(slices.Clone(d.ContainerEdits.Env), func(v string) bool {
		return !strings.HasPrefix(v, "RNICD_")
	})
}

// Without a switch there are the sockets, a look, and the libraries without an environment. Podman
// of Debian 12 reads the version.
func TestSpec(t *testing.T) {
	spec := host.Spec()
	valid(t, spec)
	require.Equal(t, "0.3.0", spec.Version)
	loads := []string{"LD_PRELOAD=/usr/lib/rnicd/librnicd_verbs.so",
		"LD_LIBRARY_PATH=/usr/lib/rnicd/standin"}
	env := map[string][]string{}
	for _, d := range spec.Devices {
		env[d.Name] = d.ContainerEdits.Env
		require.Len(t, d.ContainerEdits.Mounts, 1)
		require.Equal(t, "/opt/lib/rnicd", d.ContainerEdits.Mounts[0].HostPath)
		require.Equal(t, "/usr/lib/rnicd", d.ContainerEdits.Mounts[0].ContainerPath)
	}
	require.Equal(t, map[string][]string{Sockets: loads, Tools: nil,
		RoCE: append(slices.Clone(loads), "RNICD_DEVICE=roce")}, env)
}

const programs = `
[switch]
socket = "/run/s/programs/switch.sock"
[control]
socket = "/run/s/control.sock"
[[uplink]]
name = "rnic0"
host_address = "10.9.0.254/20"
[[uplink]]
name = "rnic1"
driver = "dpdk"
pci = "0000:3b:00.0"
[[program]]
name = "store"
uplink = "rnic0"
id = 1
addresses = ["10.9.0.1", "fd09::1"]
[[program]]
name = "keeper"
uplink = "rnic0"
socket = "/run/s/keeper.sock"
id = 7
secret = "wonderful"
addresses = ["10.9.0.2"]
mac = "02:00:00:00:00:09"
mtu = 1400
queues = 2
vlan = 5
[[program]]
name = "left"
uplink = "rnic1"
id = 3
addresses = ["10.9.0.9"]
ports = ["7174", "50000-50999"]
[[program]]
name = "right"
uplink = "rnic1"
id = 4
addresses = ["10.9.3.9"]
`

// Each program's container gets what the switch wants of it; the engine takes every environment.
// Prefixes are those of the uplink, or have all whom the program sees. A folder with the control
// socket is not shown.
func TestPrograms(t *testing.T) {
	open, secret, err := host.Programs(parsed(t, programs))
	require.NoError(t, err)
	valid(t, open)
	valid(t, secret)
	require.Len(t, open.Devices, 3)
	require.Len(t, secret.Devices, 1, "it has the only secret")
	text, err := Encode(open)
	require.NoError(t, err)
	require.NotContains(t, string(text), "wonderful")
	want := map[string][]string{
		"store": {"RNICD_ADDR=10.9.0.1/20,fd09::1/64", "RNICD_DAD=off", "RNICD_ID=1",
			"RNICD_PMD=memif", "RNICD_SOCKET=/run/rnicd/switch.sock"},
		"keeper": {"RNICD_ADDR=10.9.0.2/20", "RNICD_DAD=off", "RNICD_ID=7",
			"RNICD_MAC=02:00:00:00:00:09", "RNICD_MTU=1400", "RNICD_PMD=memif", "RNICD_QUEUES=2",
			"RNICD_SECRET=wonderful", "RNICD_SOCKET=/run/rnicd/keeper.sock", "RNICD_VLAN=5"},
		"left": {"RNICD_ADDR=10.9.0.9/22", "RNICD_DAD=off", "RNICD_DIAL_PORTS=50000-50999",
			"RNICD_ID=3", "RNICD_PMD=memif", "RNICD_SOCKET=/run/rnicd/switch.sock"},
		"right": {"RNICD_ADDR=10.9.3.9/22", "RNICD_DAD=off", "RNICD_ID=4", "RNICD_PMD=memif",
			"RNICD_SOCKET=/run/rnicd/switch.sock"},
	}
	for _, d := range append(open.Devices, secret.Devices...) {
		require.Equal(t, want[d.Name], rnicEnv(d))
		require.Subset(t, d.ContainerEdits.Env, host.Spec().Devices[0].ContainerEdits.Env)
		_, err := portfile.Environment(d.ContainerEdits.Env, port.All())
		require.NoError(t, err, d.Name)
		require.Len(t, d.ContainerEdits.Mounts, 2)
		m := d.ContainerEdits.Mounts[1]
		if d.Name == "keeper" {
			require.Equal(t, []string{"/run/s/keeper.sock", "/run/rnicd/keeper.sock"},
				[]string{m.HostPath, m.ContainerPath}, "its folder has the control socket")
		} else {
			require.Equal(t, []string{"/run/s/programs", "/run/rnicd"},
				[]string{m.HostPath, m.ContainerPath})
		}
	}
}

// What the caller says goes first: the prefix, where it leaves the address a host's; groups, which
// a later version of CDI has.
func TestHost(t *testing.T) {
	s := parsed(t, programs)
	h := Host{Libraries: "/lib", PrefixLen: 28, GIDs: []uint32{101}}
	open, _, err := h.Programs(s)
	require.NoError(t, err)
	valid(t, open)
	require.Equal(t, "0.7.0", open.Version)
	require.Equal(t, "RNICD_ADDR=10.9.0.1/28,fd09::1/64", rnicEnv(open.Devices[0])[0])
	require.Equal(t, []uint32{101}, open.Devices[0].ContainerEdits.AdditionalGIDs)
	h.PrefixLen = 30
	_, _, err = h.Programs(parsed(t, strings.ReplaceAll(programs, "10.9.0.1", "10.9.0.4")))
	require.ErrorContains(t, err, "program store is left out: 10.9.0.4/30: the first and the last")
}

// A program that no container can be is left out, and said; the others are there.
func TestProgramsLeftOut(t *testing.T) {
	for name, row := range map[string]struct{ from, to, err string }{
		"a device of ours": {`"store"`, `"sockets"`, "program sockets is left out: its name is that of " +
			"a device which is there without a switch; give it another"},
		"no device's name": {`"store"`, `"store-"`, "program store- is left out: the name of a device " +
			"begins and ends with a letter or a digit; give it another"},
		"abstract": {`id = 1`, "id = 1\nsocket = \"@s\"", "program store is left out: socket @s is in the " +
			"abstract namespace, which a container with a network of its own has not; give it a path"},
	} {
		open, secret, err := host.Programs(parsed(t, strings.Replace(programs, row.from, row.to, 1)))
		require.EqualError(t, err, row.err, name)
		require.Len(t, open.Devices, 2, name)
		require.Len(t, secret.Devices, 1, name)
	}
}

// Files are whole, with their modes whatever the umask; a secret is root's. A switch without
// secrets any more has no file of them; others' files stay.
func TestFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "c[d]i")
	open, secret, err := host.Programs(parsed(t, programs))
	require.NoError(t, err)
	paths, err := WritePrograms(dir, "/etc/rnicd/switch.toml", open, secret)
	require.NoError(t, err)
	require.Equal(t, []string{dir + "/rnicd-switch.json", dir + "/rnicd-switch-secret.json"}, paths)
	require.NoError(t, Write(filepath.Join(dir, FileName), host.Spec(), 0o644))
	for name, mode := range map[string]fs.FileMode{"rnicd-switch.json": 0o644,
		"rnicd-switch-secret.json": 0o600, "rnicd.json": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
		var spec specs.Spec
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &spec))
		valid(t, &spec)
	}
	others := []string{"rnicd-else.json", "rnicdelse.json", "nvidia.json"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(`{"kind": "nvidia.com/gpu"}`),
			0o600))
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Len(t, names(), 6, "nothing temporary stays")
	files, err := Find(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		require.ErrorContains(t, f.Err, "stat /opt/lib/rnicd: no such file or directory")
	}

	_, err = WritePrograms(dir, "/etc/rnicd/switch.toml", open, nil)
	require.NoError(t, err)
	require.NotContains(t, names(), "rnicd-switch-secret.json")
	removed, err := Remove(dir, "/elsewhere/other.toml")
	require.NoError(t, err)
	require.Empty(t, removed)
	removed, err = Remove(dir, "/etc/rnicd/switch.toml")
	require.NoError(t, err)
	require.Equal(t, []string{dir + "/rnicd-switch.json"}, removed)
	_, err = Remove(dir, "")
	require.NoError(t, err)
	require.ElementsMatch(t, others, names())
	removed, err = Remove(filepath.Join(dir, "none"), "")
	require.NoError(t, err)
	require.Empty(t, removed)
}

// A file that is no JSON is told, and can be removed.
func TestFindBroken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rnicd-x.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	files, err := Find(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.ErrorContains(t, files[0].Err, path+": unexpected end of JSON input")
	removed, err := Remove(dir, "")
	require.NoError(t, err)
	require.Equal(t, []string{path}, removed)
}
