package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// runOn is run over our own TCP, on the device that the flags name.
func (l *lab) runOn(flags, need string, args ...string) *netlab.Process {
	l.t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		skip.Missing(l.t, "needs %s, of Debian's package %s", args[0], need)
	}
	all := append([]string{"run", "--verbose"}, strings.Fields(flags)...)
	return l.Start(
		l.t, exec.Command(filepath.Join(l.dir, "rnicd"), append(append(all, "--"), args...)...))
}

// tapFlags are a TAP with the kernel at the other side.
const tapFlags = "--pmd tap --no-dad --host-addr 10.9.0.1/24 --addr 10.9.0.2/24"

// A server over our own TCP on a TAP, its client over the kernel's sockets at its other side.
func TestOwnTCPOnTAP(t *testing.T) {
	for _, x := range []struct{ name, server, client, want string }{
		{"ib_write_bw", "ib_write_bw -R -F -n 200", "ib_write_bw -R -F -n 200 10.9.0.2", `^ 65536 +200 `},
		{"ib_send_lat", "ib_send_lat -R -F -n 200", "ib_send_lat -R -F -n 200 10.9.0.2", `^ 2 +200 `},
		{"ucmatose", "ucmatose", "ucmatose -s 10.9.0.2", `^return status 0$`},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newLab(t)
			server := l.runOn(tapFlags, "rdmacm-utils", strings.Fields(x.server)...)
			server.Expect(t, 1, "^rnicd: listening at ")
			client := l.run("rdmacm-utils", strings.Fields(x.client)...)
			bothEnd(t, client, server)
			require.NotEmpty(t, client.Lines(x.want), "client:\n%s", client)
		})
	}
}

// Two programs, each with our own TCP, on a cable of shared memory.
func TestOwnTCPOnMemif(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	for _, x := range []struct{ name, server, client, want string }{
		{"ib_write_bw", "ib_write_bw -R -F -n 200", "ib_write_bw -R -F -n 200 10.9.0.1", `^ 65536 +200 `},
		{"ib_write_bw -q", "ib_write_bw -R -F -n 200 -q 12", "ib_write_bw -R -F -n 200 -q 12 10.9.0.1",
			`^ 65536 +2400 `},
		{"ib_send_bw -q", "ib_send_bw -R -F -n 128 -q 3 -s 5000 -t 32 -r 64",
			"ib_send_bw -R -F -n 128 -q 3 -s 5000 -t 32 -r 64 10.9.0.1", `^ 5000 +384 `},
		{"ib_send_bw -e", "ib_send_bw -R -F -n 200 -e", "ib_send_bw -R -F -n 200 -e 10.9.0.1",
			`^ 65536 +200 `},
		{"ib_read_bw -e", "ib_read_bw -R -F -n 200 -e", "ib_read_bw -R -F -n 200 -e 10.9.0.1",
			`^ 65536 +200 `},
		{"ib_read_lat -e", "ib_read_lat -R -F -n 200 -e", "ib_read_lat -R -F -n 200 -e 10.9.0.1",
			`^ 2 +200 `},
		{"ib_send_lat -e", "ib_send_lat -R -F -n 200 -e", "ib_send_lat -R -F -n 200 -e 10.9.0.1",
			`^ 2 +200 `},
		{"ib_atomic_bw -e", "ib_atomic_bw -R -F -n 200 -e", "ib_atomic_bw -R -F -n 200 -e 10.9.0.1",
			`^ 8 +200 `},
		{"ib_atomic_lat -e", "ib_atomic_lat -R -F -n 200 -e", "ib_atomic_lat -R -F -n 200 -e 10.9.0.1",
			`^ 8 +200 `},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newLab(t)
			socket := filepath.Join(t.TempDir(), "memif")
			server := l.runOn("--pmd memif --no-dad --role server --addr 10.9.0.1/24 --socket "+socket,
				"rdmacm-utils", strings.Fields(x.server)...)
			server.Expect(t, 1, "^rnicd: listening at ")
			client := l.runOn("--pmd memif --no-dad --addr 10.9.0.2/24 --socket "+socket, "rdmacm-utils",
				strings.Fields(x.client)...)
			bothEnd(t, client, server)
			require.NotEmpty(t, client.Lines(x.want), "client:\n%s", client)
		})
	}
}

// What cannot be is told before the program starts; and by a program that is started without
// rnicd, when it looks for its device.
func TestWrongEnvironment(t *testing.T) {
	l := newLab(t)
	p := l.runOn("--pmd tap --addr 10.9.0.2", "ibverbs-utils", "ibv_devinfo")
	require.NotZero(t, p.Wait(t))
	p.Expect(t, 1, `rnicd: --addr: "10.9.0.2": want an address with its prefix length`)
	cmd := exec.Command("ibv_devinfo")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so"),
		"RNICD_PMD=tap", "RNICD_ADDR=10.9.0.2/24", "RNICD_MTU=1")
	p = l.Start(t, cmd)
	require.NotZero(t, p.Wait(t))
	p.Expect(t, 1, `rnicd: RNICD_MTU: 1: want 576 to `)
}

// A program says at its start that it cannot have its address: another host has it, or the switch
// gives it another. Without it, it only would not connect.
func TestAddressOfAnother(t *testing.T) {
	l := newLab(t)
	cable := "--pmd memif --socket " + filepath.Join(t.TempDir(), "memif")
	server := l.startSeen(cable+" --role server --addr 10.9.0.1/24 --verbose", "server")
	server.Expect(t, 1, "^rnicd: listening at ")
	client := l.startSeen(cable+" --addr 10.9.0.1/24", "client", "10.9.0.2")
	require.Equal(t, 1, client.Wait(t), "%s", client)
	const another = "^rnicd: 10.9.0.1: another host on the link has this address, the one with MAC "
	require.Eventually(t, func() bool { // of two that look at the same time either may lose
		return len(client.Lines(another))+len(server.Lines(another)) > 0
	}, netlab.Patience, netlab.Patience/1000, "%s\n%s", client, server)

	socket := filepath.Join(t.TempDir(), "switch")
	file := filepath.Join(t.TempDir(), "switch.toml")
	require.NoError(t, os.WriteFile(file, []byte(`[control]
socket = "off"
[switch]
socket = "`+socket+`"
[[program]]
name = "one"
id = 1
addresses = ["10.9.0.1"]
`), 0o600))
	sw := l.Start(t, exec.Command(filepath.Join(l.dir, "rnicd"), "switch", "--config", file))
	sw.Expect(t, 1, "msg=ready")
	flags := "--pmd memif --id 1 --socket " + socket
	wrong := l.startSeen(flags+" --addr 10.9.0.7/24", "client", "10.9.0.2")
	require.Equal(t, 1, wrong.Wait(t), "%s", wrong)
	wrong.Expect(t, 1, "^rnicd: 10.9.0.7: the switch gives this program other addresses, or another MAC: "+
		"see addresses and mac of its \\[\\[program\\]\\]$")
	right := l.startSeen(flags+" --addr 10.9.0.1/24 --verbose", "server")
	right.Expect(t, 1, "^rnicd: listening at ")
	require.Empty(t, right.Lines("other addresses"), "%s", right)
	for _, p := range []*netlab.Process{server.Process, right.Process, sw} {
		p.Signal(t, syscall.SIGKILL)
		p.Wait(t)
	}
}
