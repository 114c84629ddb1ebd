//go:build dpdk

package dpdk

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

func TestTapLinkAndSpeed(t *testing.T) {
	s := tapSide(t, "rnictaplk", Config{})
	require.Equal(t, Link{Up: true, FullDuplex: true, Mbps: 10_000}, s.port.Link())
	command(t, "ip", "link", "set", "rnictaplk", "down")
	require.True(t, eventually(func() bool { return !s.port.Link().Up }))
	require.Equal(t, "down", s.port.Link().String())
	require.Equal(t, "up, 10000 Mbit/s", Link{true, true, 10_000}.String())
	require.Equal(t, "up, 10 Mbit/s, half duplex", Link{true, false, 10}.String())
	require.Equal(t, "up", Link{Up: true}.String())
}

func TestRingXStats(t *testing.T) {
	a, b := ringSides(t, "xstats", 64, 512, 2048)
	r := newRand(t)
	for range 10 {
		a.send(t, frame(r, 100))
	}
	b.receive(t, 10, nil)
	value := func(s *side, name string) (v uint64) {
		x := must(s.port.XStats())(t)
		for _, x := range x {
			if x.Name == name {
				v = x.Value
			}
		}
		return v
	}
	require.EqualValues(t, 10, value(a, "tx_good_packets"))
	require.EqualValues(t, 10, value(b, "rx_good_packets"))
	require.NoError(t, a.port.Close())
	require.ErrorContains(t, errOf(a.port.XStats()), "is closed")
}

// Its interface has the address and, asked for, takes frames to others too.
func TestTapMACAndPromiscuous(t *testing.T) {
	start(t)
	ownNamespace(t)
	mac := [6]byte{2, 0, 0, 0, 7, 7}
	s := openSide(t, Config{Vdev: "net_tap0,iface=rnictapmac", MAC: mac}, 1024, 2048)
	require.Equal(t, mac, s.port.MAC())
	require.Equal(t, "02:00:00:00:07:07", kernelMAC(t, "rnictapmac").String())
	require.Zero(t, linkFlags(t, "rnictapmac")&unix.IFF_PROMISC)
	require.NoError(t, s.port.Close())
	_ = openSide(t, Config{Vdev: "net_tap0,iface=rnictapmac", Promiscuous: true}, 1024, 2048)
	require.NotZero(t, linkFlags(t, "rnictapmac")&unix.IFF_PROMISC)
	_, err := open(Config{Vdev: "net_null0", Arena: newArena(t, 1<<21), MAC: [6]byte{1}})
	require.ErrorContains(t, err, "not the address of one station")
}

// linkFlags are an interface's, as the kernel has them.
func linkFlags(t *testing.T, name string) uint16 {
	t.Helper()
	req := must(unix.NewIfreq(name))(t)
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req))
	return req.Uint16()
}

func TestRingMACFilters(t *testing.T) {
	a, _ := ringSides(t, "filters", 64, 256, 2048)
	// net_ring has room for one and none of its own: what is added takes that place, for good.
	require.NoError(t, a.port.AddMAC([6]byte{2, 0, 0, 0, 0, 8}))
	require.ErrorContains(t, a.port.AddMAC([6]byte{2, 0, 0, 0, 0, 9}), "No space left")
	require.ErrorContains(t, a.port.RemoveMAC([6]byte{2, 0, 0, 0, 0, 8}),
		"rte_eth_dev_mac_addr_remove")
	n := openSide(t, Config{Vdev: "net_null0"}, 256, 2048)
	require.ErrorContains(t, n.port.AddMAC([6]byte{2, 0, 0, 0, 0, 9}), "rte_eth_dev_mac_addr_add")
}

// net_tap knows one mode, and says of the others that it does not.
func TestTapFlowControl(t *testing.T) {
	s := tapSide(t, "rnictapfc", Config{FlowControl: "none"})
	mode := must(s.port.FlowControl())(t)
	require.Equal(t, "none", mode)
	a := newArena(t, 1<<22)
	refused(t, Config{Vdev: "net_tap1,iface=rnictapfc1", Arena: a, FlowControl: "full"}, 512,
		"rte_eth_dev_flow_ctrl_set full")
	_, err := open(Config{Vdev: "net_null0", Arena: a, FlowControl: "some"})
	require.ErrorContains(t, err, `FlowControl "some": want none, rx, tx, full`)
}

// What is switched on is what Caps says and frames in several buffers; merging received segments
// never is.
func TestTapOffloads(t *testing.T) {
	s := tapSide(t, "rnictapoff", Config{})
	on := strings.Join(s.port.Offloads(), " ")
	for _, want := range []string{"rx:IPV4_CKSUM", "rx:TCP_CKSUM", "rx:SCATTER", "tx:TCP_CKSUM",
		"tx:TCP_TSO", "tx:MULTI_SEGS"} {
		require.Contains(t, on, want)
	}
	require.NotContains(t, on, "LRO")
	require.NoError(t, s.port.Close())
	s = openSide(t, Config{Vdev: "net_tap0,iface=rnictapoff", NoOffload: true}, 1024, 2048)
	require.NotContains(t, strings.Join(s.port.Offloads(), " "), "CKSUM")
}

// A deleted interface.
func TestAFPacketLost(t *testing.T) {
	start(t)
	ownNamespace(t)
	vethPair(t, 1)
	s := openSide(t, Config{Vdev: "net_af_packet0,iface=rnic0"}, 1024, 2304)
	require.NoError(t, s.port.Lost())
	command(t, "ip", "link", "del", "rnic0")
	require.ErrorIs(t, s.port.Lost(), ErrGone)
	s.queue.Rx(make([]mem.Buf, 8))
	require.NoError(t, s.port.Close())
	require.NoError(t, s.port.Lost(), "closed is not lost")
}

// A queue that takes nothing is told of once that has lasted, and no more when it takes again.
func TestRingStuck(t *testing.T) {
	a, b := ringSides(t, "stuck", 64, 512, 2048)
	r := newRand(t)
	now := time.Now()
	look := func(after time.Duration) []int { return a.port.Stuck(now.Add(after), 5*time.Second) }
	offer := func() int {
		f := a.buf(t, frame(r, 100))
		defer a.pool.Free(f)
		return a.queue.Tx([]mem.Buf{f})
	}
	for offer() == 1 {
	}
	require.Empty(t, look(0))
	require.Empty(t, look(4*time.Second))
	require.Equal(t, []int{0}, look(5*time.Second))
	b.receive(t, 10, nil)
	require.Equal(t, 1, offer())
	require.Empty(t, look(6*time.Second))
	require.Empty(t, look(20*time.Second))
}

// The queue's descriptor is readable when a frame waits, and not before.
func TestTapInterrupt(t *testing.T) {
	s := tapSide(t, "rnictapirq", Config{Interrupts: true})
	fd, ok := s.queue.Interrupt()
	require.True(t, ok)
	ready := func(ms int) bool {
		n := must(unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms))(t)
		return n == 1
	}
	bufs := make([]mem.Buf, 32)
	s.queue.Arm(true)
	require.True(t, eventually(func() bool {
		s.pool.FreeN(bufs[:s.queue.Rx(bufs)])
		return !ready(0)
	}), "what the kernel says when an interface comes up")
	raw := rawSocket(t, "rnictapirq")
	want := frame(newRand(t), 200)
	must(unix.Write(raw, want))(t)
	require.True(t, ready(10_000))
	require.Equal(t, [][]byte{want}, s.receive(t, 1, isOurs))
	s.queue.Arm(false)

	refused(t, Config{Vdev: "net_null0", Arena: newArena(t, 1<<22), Interrupts: true}, 512,
		"has no receive interrupts")
}

// The files of sysfs: a NIC on a node, one on a machine without nodes, one that is not there.
func TestNUMANode(t *testing.T) {
	sys := fstest.MapFS{
		"0000:01:00.0/numa_node": {Data: []byte("1\n")},
		"0000:02:00.0/numa_node": {Data: []byte("-1\n")},
		"0000:03:00.0/numa_node": {Data: []byte("banana\n")},
	}
	for name, want := range map[string]int{"0000:01:00.0": 1, "0000:02:00.0": -1, "0000:03:00.0": -1,
		"0000:04:00.0": -1} {
		require.Equal(t, want, numaNode(sys, name), name)
	}
}
