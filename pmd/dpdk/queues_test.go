//go:build dpdk

package dpdk

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

// openSides opens all queues of cfg's device, each over a Pool of its own.
func openSides(t testing.TB, cfg Config, bufs, stride int) []*side {
	t.Helper()
	start(t)
	cfg.Arena = newArena(t, cfg.Queues*bufs*stride+1<<16)
	p := must(open(cfg))(t)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	sides := make([]*side, cfg.Queues)
	for i := range sides {
		sides[i] = &side{port: p, pool: newPool(t, cfg.Arena, bufs, stride)}
		q := must(p.Open(i, sides[i].pool))(t)
		sides[i].queue, sides[i].idle = q.(*Queue), sides[i].pool.Available()
	}
	return sides
}

// queuesApart passes frames between queues of one number; what leaves on one comes in on no other.
func queuesApart(t *testing.T, a, b []*side) {
	t.Helper()
	r := newRand(t)
	for i := range a {
		bothWays(t, a[i], b[i], func(*rand.Rand) int { return 60 + r.IntN(1400) })
	}
	bufs := make([]mem.Buf, 32)
	for _, s := range append(append([]*side{}, a...), b...) {
		require.Zero(t, s.queue.Rx(bufs))
		require.NotZero(t, s.queue.Counters().RxFrames)
	}
}

func TestRingPairQueues(t *testing.T) {
	start(t)
	a, b, err := ringPairQueues("queues", 256, 3)
	require.NoError(t, err)
	_, _, err = ringPairQueues("many", 256, ringQueuesMax+1)
	require.ErrorContains(t, err, "want 1 to 16")
	queuesApart(t, openSides(t, Config{Vdev: a, Queues: 3}, 512, 2048),
		openSides(t, Config{Vdev: b, Queues: 3}, 512, 2048))
}

func TestMemifQueues(t *testing.T) {
	args := ",id=0,socket-abstract=no,socket=" + filepath.Join(t.TempDir(), "memif.sock")
	srv := openSides(t, Config{Vdev: "net_memif0,role=server" + args, Queues: 2}, 1024, 2048)
	cli := openSides(t, Config{Vdev: "net_memif1,role=client" + args, Queues: 2}, 1024, 2048)
	require.True(t, eventually(func() bool { return srv[0].port.LinkUp() && cli[0].port.LinkUp() }))
	for _, s := range cli { // gives the server buffers to send into
		require.Zero(t, s.queue.Rx(make([]mem.Buf, 4)))
	}
	require.Nil(t, cli[0].port.Caps().RSSTable, "memif does not say how a peer spreads")
	queuesApart(t, srv, cli)
}

// flows sends a segment of each of n connections from the kernel's side of an interface, over a raw
// socket, and returns how many came in on each queue. A connection stays on one of them.
func flows(t *testing.T, fd, n int, sides []*side) (frames []int) {
	t.Helper()
	frames = make([]int, len(sides))
	at := map[uint16]int{}
	bufs := make([]mem.Buf, 32)
	total := 0
	for round := range 2 {
		for port := range n {
			ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: tapKernel,
				DstIP: tapOurs}
			tcp := &layers.TCP{SrcPort: layers.TCPPort(40_000 + port), DstPort: 7, ACK: true}
			require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
			eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: tapOurMAC,
				EthernetType: layers.EthernetTypeIPv4}
			must(unix.Write(fd, serialize(t, true, eth, ip, tcp, gopacket.Payload("payload"))))(t)
		}
		eventually(func() bool {
			for i, s := range sides {
				for _, b := range bufs[:s.queue.Rx(bufs)] {
					if f := s.pool.Data(b); isIPv4(6)(f, mem.Desc{}) {
						from := binary.BigEndian.Uint16(f[34:])
						if queue, known := at[from]; known {
							require.Equal(t, queue, i, "port %d came in on two queues", from)
						}
						at[from] = i
						frames[i]++
						total++
					}
					s.pool.Free(b)
				}
			}
			return total >= (round+1)*n
		})
	}
	require.Equal(t, 2*n, total, "per queue: %v", frames)
	return frames
}

// What each queue sends comes out at the other end.
func sendEach(t *testing.T, fd int, sides []*side) {
	t.Helper()
	r := newRand(t)
	for range 50 {
		for _, s := range sides {
			want := frame(r, 60+r.IntN(1400))
			s.send(t, want)
			require.Equal(t, want, readRaw(t, fd, isOurs))
		}
	}
}

func TestTapQueues(t *testing.T) {
	start(t)
	ownNamespace(t)
	sides := openSides(t, Config{Vdev: "net_tap0,iface=rnictapq", Queues: 3}, 1024, 2048)
	command(t, "ip", "link", "set", "rnictapq", "up")
	require.Nil(t, sides[0].port.Caps().RSSTable, "the kernel spreads, by a hash of its own")
	fd := rawSocket(t, "rnictapq")
	sendEach(t, fd, sides)
	for i, n := range flows(t, fd, 64, sides) {
		require.NotZero(t, n, "queue %d", i)
	}
}

// vethPair makes two joined interfaces with as many queues each.
func vethPair(t *testing.T, queues int) {
	t.Helper()
	n := fmt.Sprint(queues)
	command(t, "ip", "link", "add", "rnic0", "numrxqueues", n, "numtxqueues", n, "type", "veth",
		"peer", "name", "rnic1", "numrxqueues", n, "numtxqueues", n)
	for _, i := range []string{"rnic0", "rnic1"} {
		command(t, "ip", "link", "set", i, "up")
	}
}

// Two sockets on one interface, between which the kernel spreads what comes in (PACKET_FANOUT).
func TestAFPacketQueues(t *testing.T) {
	start(t)
	ownNamespace(t)
	vethPair(t, 2)
	sides := openSides(t, Config{Vdev: "net_af_packet0,iface=rnic0,qpairs=2", Queues: 2}, 1024, 2304)
	fd := rawSocket(t, "rnic1")
	sendEach(t, fd, sides)
	for i, n := range flows(t, fd, 64, sides) {
		require.NotZero(t, n, "queue %d", i)
	}
}
