package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sample"
)

// A daemon on DPDK that was killed leaves nothing that keeps the next one from starting and being
// heard: files of hugepages, a TAP, an XDP program, the socket of a memif server.
func TestDPDKAfterACrash(t *testing.T) {
	needDPDK(t)
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	require.NoError(t, os.Mkdir(huge, 0o755))
	const veth = "ip link add enp1s0 type veth peer name peer0 && ip link set enp1s0 up && ip link " +
		"set peer0 up && ip addr add 10.9.0.254/24 dev peer0"
	for _, c := range sample.Of(t, 2, []struct {
		name, device, more string
		before, after      string // of the first start, of each
		silent             bool   // no kernel at the other end
	}{
		{name: "net_tap", device: "net_tap0,iface=rnic0",
			after: "ip addr add 10.9.0.254/24 dev rnic0 && ip link set rnic0 up"},
		{
			name: "hugepage files", device: "net_tap0,iface=rnic0", more: "eal = [\"--huge-dir=" + huge +
				"\", \"--file-prefix=rnicd-crash\"]\n",
			after: "ip addr add 10.9.0.254/24 dev rnic0 && ip link set rnic0 up",
		},
		{name: "net_af_packet", device: "net_af_packet0,iface=enp1s0", more: "mtu = 1400\n",
			before: veth},
		{name: "net_af_xdp", device: "net_af_xdp0,iface=enp1s0", before: veth},
		{name: "net_memif", device: "net_memif0,role=server,socket-abstract=no,socket=" +
			filepath.Join(dir, "memif.sock"), silent: true},
	}) {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			if strings.Contains(c.more, huge) {
				require.NoError(t, unix.Mount("none", huge, "hugetlbfs", 0, "pagesize=2M"))
				t.Cleanup(func() {
					require.NoError(t, unix.Unmount(huge, 0))
					require.NoError(t, os.RemoveAll("/var/run/dpdk/rnicd-crash"))
				})
			}
			if c.before != "" {
				ns.Run(t, "sh", "-c", c.before)
			}
			path := configured(t, fmt.Sprintf("[control]\nsocket = %q\n[[port]]\nname = \"port0\"\ndriver "+
				"= \"dpdk\"\ndevice = %q\naddresses = [\"10.9.0.1/24\"]\ndad = \"off\"\n%s"+
				"[[service]]\nname = \"sink\"\ntype = \"stream\"\nmode = \"sink\"\n",
				filepath.Join(dir, "control.sock"), c.device, c.more))
			for i := range 3 {
				server := ns.rnicd(t, "serve", "--config", path)
				server.Expect(t, 1, "msg=ready ")
				if c.after != "" {
					ns.Run(t, "sh", "-c", c.after)
				}
				if !c.silent {
					ns.Run(t, "ping", "-c", "1", "-W", "10", "10.9.0.1")
				}
				if i < 2 {
					server.Signal(t, syscall.SIGKILL)
					server.Wait(t)
					if strings.Contains(c.more, huge) {
						files := must(os.ReadDir(huge))(t)
						require.NotEmpty(t, files, "what the next start has to do with")
					}
					continue
				}
				ns.stop(t, server)
			}
		})
	}
}
