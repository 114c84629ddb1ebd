package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// On a veth the kernel leaves TCP's checksums to the other end: nobody can connect. The daemon says
// so when it starts and when such segments come, doctor says so too, with the command that mends
// it; after that all is well.
func TestChecksumsLeftToAVeth(t *testing.T) {
	t.Parallel()
	needDPDK(t)
	ns := newNamespace(t)
	ns.vethToKernel(t)
	path := configured(t, `
[[port]]
name = "nic0"
driver = "dpdk"
device = "net_af_packet0,iface=eth1"
addresses = ["10.9.0.1/24"]

[[service]]
name = "scratch"
type = "region"
size = "4MiB"
`)
	server := ns.rnicd(t, "serve", "--config", path)
	server.Expect(t, 1, `level=WARN msg="TCP and UDP may not arrive" port=nic0 why="eth1 is an `+
		`end of a veth, .*peer1.*" fix="ethtool -K peer1 tx off"`)
	server.Expect(t, 1, "msg=ready ")
	doctor := ns.rnicd(t, "doctor", "--config", path)
	doctor.Wait(t)
	doctor.Expect(t, 1, "^lack  checksums +port nic0: eth1 is an end of a veth, ")
	doctor.Expect(t, 1, "^ +ethtool -K peer1 tx off$")

	f := randomFile(t, 1<<20)
	ns.fails(t, "put --timeout 3s "+f.path+" 10.9.0.1", "")
	server.Expect(t, 1, `level=WARN msg="packets came without checksums: .*ethtool -K DEVICE tx off" `+
		`port=nic0 packets=[1-9]`)

	ns.NoOffload(t, "peer1")
	ns.succeeds(t, "put --timeout 60s "+f.path+" 10.9.0.1")
	doctor = ns.rnicd(t, "doctor", "--config", path)
	doctor.Wait(t)
	doctor.Expect(t, 1, "^ok +checksums ")
}

// Datagrams of a C program's, from the kernel, through a switch whose uplink is such a veth: the
// switch says so when it starts, and the program when one has come.
func TestChecksumsLeftOfDatagrams(t *testing.T) {
	t.Parallel()
	needDPDK(t)
	need(t, "ibv_ud_pingpong", "ibverbs-utils")
	lib := librariesPath(t)
	if lib == "" {
		skip.Missing(t, "needs gcc, libibverbs-dev and librdmacm-dev")
	}
	ns := newNamespace(t)
	ns.vethToKernel(t)
	socket := filepath.Join(t.TempDir(), "switch.sock")
	s := ns.rnicd(t, "switch", "--config", configured(t, fmt.Sprintf(`
[switch]
socket = %q
[[uplink]]
name = "nic0"
driver = "dpdk"
device = "net_af_packet0,iface=eth1"
[[program]]
name = "store"
id = 1
addresses = ["10.9.0.1"]
`, socket)))
	s.Expect(t, 1, `level=WARN msg="TCP and UDP may not arrive" uplink=nic0 why="eth1 .*peer1`)
	s.Expect(t, 1, "msg=ready ")
	pingpong := func(run, more string) *process {
		return ns.rnicd(t, strings.Fields("run --lib "+lib+" --device roce "+run+
			" -- ibv_ud_pingpong -n 100 "+more)...)
	}
	// GIDs: the kernel's side has 10.9.0.254 besides loopback.
	store := "--verbose --pmd memif --addr 10.9.0.1/24 --no-dad --id 1 --socket " + socket
	server := pingpong(store, "-g 0")
	require.True(t, server.AwaitListener(t, pingpongPort), "%s", server)
	client := pingpong("", "-g 0 127.0.0.1")
	server.Expect(t, 1, "^rnicd: [1-9][0-9]* packets came without checksums: .*ethtool -K DEVICE tx off$")
	server.Signal(t, syscall.SIGTERM)
	server.Wait(t)
	client.Signal(t, syscall.SIGTERM)
	client.Wait(t)
	ns.NoOffload(t, "peer1")
	server = pingpong(store, "-g 0")
	require.True(t, server.AwaitListener(t, pingpongPort), "%s", server)
	client = pingpong("", "-g 0 127.0.0.1")
	require.Zero(t, client.Wait(t), "%s\n%s", client, server)
	require.Zero(t, server.Wait(t), "%s", server)
	ns.ends(t, s)
}

// pingpongPort is where its server listens for its client.
const pingpongPort = 18515

// vethToKernel makes a veth, of which eth1 is for a port and peer1, 10.9.0.254, is the kernel's.
func (ns *namespace) vethToKernel(t *testing.T) {
	t.Helper()
	ns.veth(t, "eth1", "peer1")
	ns.Run(t, "ip", "address", "add", "10.9.0.254/24", "dev", "peer1")
}
