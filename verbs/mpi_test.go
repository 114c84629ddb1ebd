package verbs

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// mpiHosts are hosts as Open MPI sees them, each with a network of its own, on one switch.
type mpiHosts struct {
	*lab
	hosts []*netlab.Namespace
	agent string // what mpirun starts a command on another host with, instead of ssh
}

func newMPIHosts(t *testing.T, n int) *mpiHosts {
	t.Helper()
	for _, tool := range []string{"mpirun", "mpicc", "oshrun", "oshcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip.Missing(t, "needs %s, of Debian's packages openmpi-bin and libopenmpi-dev", tool)
		}
	}
	m := &mpiHosts{lab: newLab(t)}
	hub := netlab.New(t)
	hub.Run(t, "ip", "link", "add", "hub", "type", "bridge")
	hub.Run(t, "ip", "link", "set", "hub", "up")
	script := "#!/bin/sh\n# Like ssh, it passes no variables on.\nhost=$1; shift\ncase $host in\n"
	for i := range n {
		ns := m.Namespace
		if i > 0 {
			ns = netlab.New(t)
		}
		port := fmt.Sprintf("port%d", i)
		netlab.VethWith(t, ns, netlab.Device{Name: "eth0", Addrs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}), 24)}},
			hub, netlab.Device{Name: port}, nil)
		hub.Run(t, "ip", "link", "set", port, "master", "hub")
		script += fmt.Sprintf("h%d) pid=%d ;;\n", i, ns.Hold(t).PID())
		m.hosts = append(m.hosts, ns)
	}
	script += "esac\nexec env -i PATH=\"$PATH\" HOME=\"$HOME\" nsenter --net=/proc/$pid/ns/net" +
		" unshare -u sh -c 'hostname $0; exec sh -c \"$1\"' $host \"$*\"\n"
	m.agent = filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.WriteFile(m.agent, []byte(script), 0o700))
	return m
}

// compile builds a program of test/verbs by Open MPI's mpicc or oshcc.
func (m *mpiHosts) compile(compiler, name string) string {
	m.t.Helper()
	program := filepath.Join(m.t.TempDir(), name)
	text, err := exec.Command(compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", program,
		"../test/verbs/"+name+".c").CombinedOutput()
	require.NoError(m.t, err, "%s", text)
	return program
}

// run starts ranks by mpirun or oshrun, each a program with arguments, evenly on all hosts. The
// libraries come to them by -x.
func (m *mpiHosts) run(launcher string, ranks int, flags string,
	program ...string) *netlab.Process {
	var hosts []string
	for i := range m.hosts {
		hosts = append(hosts, fmt.Sprintf("h%d:%d", i, ranks/len(m.hosts)))
	}
	args := []string{"-u", "sh", "-c", `hostname h0; exec "$@"`, "sh", filepath.Join(m.dir, "rnicd"),
		"run", "--device", "roce", "--", launcher, "-np", strconv.Itoa(ranks), "--oversubscribe",
		"--host", strings.Join(hosts, ","), "--mca", "plm_rsh_agent", m.agent, "--mca",
		"orte_tmpdir_base", m.t.TempDir(), "-x", "LD_PRELOAD", "-x", "LD_LIBRARY_PATH", "-x",
		"RNICD_DEVICE"}
	cmd := exec.Command("unshare", append(append(args, strings.Fields(flags)...), program...)...)
	cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return m.Start(m.t, cmd)
}

// Open MPI on four hosts, over UCX and over libfabric: messages, collective and one-sided
// operations, all of whose octets the program compares.
func TestMPI(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	for _, x := range []struct {
		name, flags string
		ranks       int
	}{
		{"UCX", "--mca pml ucx --mca osc ucx -x UCX_TLS=rc,ud,self", 8},
		{"libfabric", "--mca pml cm --mca mtl ofi --mca osc pt2pt --mca mtl_ofi_provider_include " +
			"verbs;ofi_rxm", 4},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newMPIHosts(t, 4)
			p := m.run("mpirun", x.ranks, x.flags, m.compile("mpicc", "mpi"),
				strconv.Itoa(rand.IntN(1<<31)))
			require.Zero(t, p.Wait(t), "%s", p)
			p.Expect(t, 1, "^verified$")
		})
	}
}

// OpenSHMEM of Open MPI on four hosts: puts, gets, atomics, locks, reductions, with every number
// compared by all PEs. Debian's Open MPI wants two of its parameters changed, over any network:
// docs/guides/mpi.md. With these the PEs end well, too.
func TestSHMEM(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	for _, transports := range []string{"rc,ud,self", "ud,self"} {
		t.Run(transports, func(t *testing.T) {
			m := newMPIHosts(t, 4)
			p := m.run("oshrun", 4, "--mca pml ucx --mca spml ucx --mca sshmem mmap --mca "+
				"opal_common_ucx_opal_mem_hooks 0 -x UCX_TLS="+transports, m.compile("oshcc", "shmem"),
				strconv.Itoa(rand.IntN(1<<31)))
			require.Zero(t, p.Wait(t), "%s", p)
			p.Expect(t, 1, "^verified$")
		})
	}
}
