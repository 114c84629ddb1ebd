//go:build dpdk

package port

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// namespace is one of the test's own, for devices of DPDK's.
func namespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root")
	}
	netlab.Enter(t)
}

func run(t *testing.T, words ...string) {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%q: %s", words, out)
}

func dpdkConfig(t *testing.T, device, addr string) Config {
	t.Helper()
	d, err := Builtin().ByName("dpdk")
	require.NoError(t, err)
	return Config{Driver: d, Device: device, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, DAD: DADNone, Node: -1}
}

// The options of a port reach its device: it has two queues only when it is told to.
func TestDPDKOptionsReachDevice(t *testing.T) {
	namespace(t)
	run(t, "ip", "link", "add", "rnic0", "type", "veth", "peer", "name", "rnic1")
	run(t, "ip", "link", "set", "rnic0", "up")
	c := dpdkConfig(t, "net_af_packet0,iface=rnic0", "10.9.0.1/24")
	c.Queues = 2
	_, err := Open(c)
	require.ErrorContains(t, err, "has 1 queue pairs, 2 wanted")
	c.Options = map[string]string{"devargs": "qpairs=2,framecnt=1024", "rx_descriptors": "256", "rx_buffers": "200"}
	_, err = Open(c)
	require.ErrorContains(t, err, "200 Bufs to receive into do not even fill 256 descriptors")
	c.Options["rx_buffers"] = "2048"
	p, err := Open(c)
	require.NoError(t, err)
	require.IsType(t, &dpdk.Port{}, p.Device())
	require.Len(t, p.Pollers(), 2)
	require.NoError(t, p.Close())
}
