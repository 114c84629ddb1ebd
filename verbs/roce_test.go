package verbs

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// The device as a RoCE adapter (RNICD_DEVICE=roce).

// asRoCE starts a program by rnicd run --device roce.
func (l *lab) asRoCE(args ...string) *netlab.Process {
	l.t.Helper()
	all := append([]string{"run", "--device", "roce", "--"}, args...)
	return l.Start(l.t, exec.Command(filepath.Join(l.dir, "rnicd"), all...))
}

// Its table of GIDs has the host's addresses: that of the default route first, loopback last, none
// that means nothing without its interface.
func TestGIDsOfTheHost(t *testing.T) {
	l := newLab(t)
	program := l.compile("roce")
	p := l.run("gcc", program, "127.0.0.1", "::1")
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^mtu 4096$")

	for _, args := range [][]string{
		{"link", "add", "one", "type", "veth", "peer", "name", "two"},
		{"link", "add", "idle", "type", "veth", "peer", "name", "other"},
		{"link", "set", "one", "up", "mtu", "1500"},
		{"link", "set", "two", "up", "mtu", "9000"}, {"addr", "add", "10.1.0.1/24", "dev", "one"},
		{"addr", "add", "10.2.0.1/24", "dev", "two"}, {"addr", "add", "10.3.0.1/24", "dev", "idle"},
		{"addr", "add", "fd01::1/64", "dev", "one", "nodad"},
		{"addr", "add", "fd02::1/64", "dev", "two", "nodad"},
		{"addr", "add", "169.254.1.1/16", "dev", "one"}, {"route", "add", "default", "dev", "two"},
		{"-6", "route", "add", "default", "dev", "one"},
	} {
		l.Run(t, "ip", args...)
	}
	p = l.asRoCE(program, "10.2.0.1", "10.1.0.1", "fd01::1", "fd02::1", "169.254.1.1", "127.0.0.1",
		"::1")
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^mtu 4096$")
	p.Expect(t, 1, "^all well$")
}

// Over our own TCP it has the port's.
func TestGIDsOfAPort(t *testing.T) {
	l := newLab(t)
	p := l.runOn("--device roce --pmd tap --no-dad --host-addr 10.9.0.1/24 --addr 10.9.0.2/24 "+
		"--addr fd09::2/64", "gcc", l.compile("roce"), "10.9.0.2", "fd09::2")
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^mtu 1024$")
	p.Expect(t, 1, "^all well$")
}

// Programs that connect by librdmacm find it as good as the RNIC, and so do both at once.
func TestEitherDevice(t *testing.T) {
	l := newLab(t)
	server := l.asRoCE("rping", "-s", "-C", "3", "-v", "-a", here.String())
	l.untilListening(rpingPort)
	client := l.run("rdmacm-utils", "rping", "-c", "-C", "3", "-v", "-a", here.String())
	bothEnd(t, client, server)
	client.Expect(t, 3, "^ping data")

	server = l.asRoCE("ib_write_bw", "-R", "-F", "-n", "200")
	l.untilListening(perfPort)
	client = l.asRoCE("ib_write_bw", "-R", "-F", "-n", "200", here.String())
	bothEnd(t, client, server)
}

// Connections by librdmacm between two ends as RoCE keep a reliable connection's rules: a message
// waits for its buffer, and what has completed is there. With one end as an RNIC they do not.
func TestReadyByLibrdmacm(t *testing.T) {
	l := newLab(t)
	program := l.compile("cmready")
	p := l.runOn("--device roce", "gcc", program)
	allWell(t, p)
	require.NotEmpty(t, p.Lines("^rnicd: connected, .*, acknowledged$"), "%s", p)
	p = l.run("gcc", program)
	require.NotZero(t, p.Wait(t), "%s", p)
	require.Empty(t, p.Lines("acknowledged$"), "%s", p)

	for _, flags := range [][2]string{{"--device roce", ""}, {"", "--device roce"}} {
		server := l.runOn(flags[0], "rdmacm-utils", "rping", "-s", "-C", "3", "-a", here.String())
		l.untilListening(rpingPort)
		client := l.runOn(flags[1], "rdmacm-utils", "rping", "-c", "-C", "3", "-a", here.String())
		bothEnd(t, client, server)
		require.Empty(t, client.Lines("acknowledged$"), "%s", client)
	}
}

// Two programs, each with our own TCP, on a cable of shared memory.
func TestReadyByLibrdmacmOnMemif(t *testing.T) {
	l := newLab(t)
	cable := "--device roce " + memifCable(t)
	server := l.runOn(cable+" --role server --addr 10.9.0.1/24", "rdmacm-utils", "rping", "-s", "-C",
		"3")
	server.Expect(t, 1, "^rnicd: listening at ")
	client := l.runOn(cable+" --addr 10.9.0.2/24", "rdmacm-utils", "rping", "-c", "-C", "3", "-a",
		"10.9.0.1")
	bothEnd(t, client, server)
	client.Expect(t, 1, "^rnicd: connected, .*, acknowledged$")
}
