package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// memlock is what a user may lock by default.
const memlock = 8 << 20

// public is a folder that every user can reach, with a configuration in it that every user can
// read.
func public(t *testing.T, text string) (dir, path string) {
	t.Helper()
	programPath(t) // makes the folder that such folders are in
	dir = must(os.MkdirTemp(program.dir, "public-"))(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	path = filepath.Join(dir, "rnicd.toml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "/run/rnicd", dir)), 0o644))
	return dir, path
}

// unprivileged starts the program as a user with these capabilities and no others, in sight of a
// /run/xdp of its own, as the unit's RuntimeDirectory makes it.
func (ns *namespace) unprivileged(t *testing.T, caps []string, args ...string) *process {
	t.Helper()
	for _, tool := range []string{"setpriv", "prlimit", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip.Missing(t, "no %s (util-linux)", tool)
		}
	}
	set := "-all"
	for _, c := range caps {
		set += ",+" + c
	}
	script := fmt.Sprintf(`mkdir -p /run/xdp && mount -t tmpfs -o uid=%d,mode=700 none /run/xdp &&
exec prlimit --memlock=%d setpriv --reuid=%d --regid=%d --clear-groups --inh-caps=%s --ambient-caps=%s --bounding-set=%s --no-new-privs -- "$@"`,
		nobody, memlock, nobody, nobody, set, set, set)
	return ns.Start(t, exec.Command("unshare", append([]string{"-m", "sh", "-c", script, "sh",
		programPath(t)}, args...)...))
}

// rights are the capabilities that each kind of port takes: what the unit, its drop-ins and
// bare-metal.md say. With IPC_LOCK the limit of locked memory is of no account; the unit has no
// limit instead.
var rights = []struct {
	name, port string
	dpdk       bool
	caps       []string
	interfaced bool // it wants enp1s0
}{
	{name: "kernel", port: "driver = \"kernel\"\naddresses = [\"127.0.0.1\"]"},
	{name: "memif", port: "driver = \"memif\"\nrole = \"server\"\nsocket = " +
		"\"/run/rnicd/memif.sock\"\naddresses = [\"10.9.0.1/24\"]\ndad = \"off\""},
	{name: "tap", port: "driver = \"tap\"\naddresses = [\"10.9.0.1/24\"]\ndad = " +
		"\"off\"\nhost_address = \"10.9.0.254/24\"", caps: []string{"net_admin"}},
	{name: "net_tap", port: "driver = \"dpdk\"\ndevice = \"net_tap0,iface=rnic0\"\naddresses = " +
		"[\"10.9.0.1/24\"]\ndad = \"off\"", dpdk: true, caps: []string{"net_admin"}},
	{
		name: "net_af_packet", port: "driver = \"dpdk\"\ndevice = " +
			"\"net_af_packet0,iface=enp1s0\"\naddresses = [\"10.9.0.1/24\"]\ndad = \"off\"\nmtu = 1400",
		dpdk: true,
		caps: []string{"net_admin", "net_raw"}, interfaced: true,
	},
	{
		name: "net_af_xdp", port: "driver = \"dpdk\"\ndevice = \"net_af_xdp0,iface=enp1s0\"\naddresses " +
			"= [\"10.9.0.1/24\"]\ndad = \"off\"", dpdk: true,
		caps: []string{"net_admin", "net_raw", "sys_admin", "ipc_lock"}, interfaced: true,
	},
}

// The switch takes, of each driver of its uplink, what a port of that driver takes; the socket
// that its programs have is no matter.
func TestCapabilitiesOfSwitch(t *testing.T) {
	const program = "[switch]\nsocket = \"/run/rnicd/programs.sock\"\nmode = " +
		"\"0660\"\n[control]\nsocket = \"/run/rnicd/control.sock\"\n[[program]]\nname = " +
		"\"one\"\naddresses = [\"10.9.0.1\"]\nuids = [0]\n"
	text := readFile(t, filepath.Join(repository, "packaging/systemd/rnicd-switch.service"))
	for _, key := range []string{"AmbientCapabilities", "CapabilityBoundingSet"} {
		require.Contains(t, text, "\n"+key+"=CAP_NET_ADMIN\n", "the unit has what is tried here")
	}
	for _, r := range []struct {
		name, uplink string
		caps         []string
	}{
		{name: "none"},
		{name: "tap", uplink: "[[uplink]]\nname = \"rnic0\"\nhost_address = \"10.9.0.254/24\"\n",
			caps: []string{"net_admin"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			ns := newNamespace(t)
			dir, path := public(t, program+r.uplink)
			s := &switched{namespace: ns, process: ns.unprivileged(t, r.caps, "switch", "--config", path),
				socket: filepath.Join(dir, "programs.sock")}
			s.Expect(t, 1, "msg=ready ")
			p := s.program(t, "serve", 0, "10.9.0.1/24") // of another user
			p.Expect(t, 1, "^ready ")
			s.ask(t, 0, "--socket", filepath.Join(dir, "control.sock"))
			p.Signal(t, syscall.SIGKILL)
			s.Expect(t, 1, "msg=detached ")
			s.end(t)
			for range r.caps {
				s := ns.unprivileged(t, nil, "switch", "--config", path)
				require.NotEqual(t, 0, s.Wait(t), "%s", s)
				require.Empty(t, s.Lines("msg=ready "))
				require.Regexp(t, "(?m)^rnicd: uplink rnic0: ", s.String())
			}
		})
	}
}

// Every kind of port opens with the capabilities that the documents name and no others, as a user
// that has nothing else; and does not open without any one of them.
func TestCapabilities(t *testing.T) {
	for _, r := range rights {
		t.Run(r.name, func(t *testing.T) {
			programPath(t)
			if r.dpdk && !program.dpdk {
				skip.Missing(t, "no DPDK headers: apt-get install libdpdk-dev")
			}
			ns := newNamespace(t)
			dir, path := public(t, "[[port]]\nname = \"port0\"\n"+r.port+"\n")
			begin := func(caps []string) *process {
				if r.interfaced { // again: a port that did not open may leave its XDP program
					if ns.Has(t, "enp1s0") {
						ns.Run(t, "ip", "link", "del", "enp1s0")
					}
					ns.veth(t, "enp1s0", "peer0")
				}
				return ns.unprivileged(t, caps, "serve", "--config", path)
			}
			server := begin(r.caps)
			server.Expect(t, 1, "msg=ready ")
			ns.stop(t, server)
			if r.interfaced {
				require.NotContains(t, ns.Run(t, "ip", "link", "show", "enp1s0"), "xdp",
					"its program is still there")
			}
			require.NoFileExists(t, filepath.Join(dir, "memif.sock"))
			for _, c := range sample.Of(t, 1, r.caps) {
				less := slices.DeleteFunc(slices.Clone(r.caps), func(other string) bool { return other == c })
				server := begin(less)
				require.NotEqual(t, 0, server.Wait(t), "without %s:\n%s", c, server)
				require.Empty(t, server.Lines("msg=ready "), "without %s", c)
			}
		})
	}
}

// Memory that may not be locked is told of, by a daemon and a switch, with the remedy.
func TestUnlockedMemory(t *testing.T) {
	const warning = `level=WARN msg="memory is not locked".*RLIMIT_MEMLOCK is .*run ulimit -l \d+ or grant CAP_IPC_LOCK`
	for command, text := range map[string]string{
		"serve": "[control]\nsocket = \"off\"\n" + "[[port]]\nname = \"local\"\n" + rights[0].port +
			"\n[[service]]\nname = \"r\"\ntype = \"region\"\nsize = \"16MiB\"\npage = \"normal\"\n",
		"switch": "[switch]\nsocket = \"/run/rnicd/programs.sock\"\npage = \"normal\"\nbuffers = " +
			"16384\n[control]\nsocket = \"off\"\n[[program]]\nname = \"one\"\naddresses = [\"10.9.0.1\"]\n",
	} {
		t.Run(command, func(t *testing.T) {
			ns := newNamespace(t)
			_, path := public(t, text)
			p := ns.unprivileged(t, nil, command, "--config", path)
			p.Expect(t, 1, "msg=ready ")
			require.Len(t, p.Lines(warning), 1, "%s", p)
			p.Signal(t, syscall.SIGTERM)
			require.Equal(t, 0, p.Wait(t))
		})
	}
}
