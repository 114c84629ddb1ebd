//go:build dpdk

package dpdk

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

var (
	tapOurMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x99}
	tapOurs   = net.IPv4(10, 99, 0, 2).To4()
	tapKernel = net.IPv4(10, 99, 0, 1).To4()
)

// tapSide opens net_tap in a namespace of its own; the kernel has 10.99.0.1 there and is told where
// we are.
func tapSide(t *testing.T, name string, cfg Config) *side {
	t.Helper()
	start(t)
	ownNamespace(t)
	cfg.Vdev = "net_tap0,iface=" + name
	s := openSide(t, cfg, 2048, 2048)
	command(t, "ip", "addr", "add", "10.99.0.1/24", "dev", name)
	command(t, "ip", "link", "set", name, "up")
	command(t, "ip", "neigh", "replace", "10.99.0.2", "lladdr", tapOurMAC.String(), "dev", name)
	return s
}

func kernelMAC(t *testing.T, name string) net.HardwareAddr {
	t.Helper()
	i := must(net.InterfaceByName(name))(t)
	return i.HardwareAddr
}

func serialize(t testing.TB, sums bool, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true,
		ComputeChecksums: sums}, ls...))
	return b.Bytes()
}

func isIPv4(proto byte) func([]byte, mem.Desc) bool {
	return func(f []byte, _ mem.Desc) bool {
		return len(f) >= 34 && f[12] == 8 && f[13] == 0 && f[23] == proto
	}
}

// Setting the kernel's side up is told of.
func TestTapWatchLink(t *testing.T) {
	s := tapSide(t, "rnictaplink", Config{})
	up := make(chan struct{}, 64)
	command(t, "ip", "link", "set", "rnictaplink", "down")
	require.True(t, eventually(func() bool { return !s.port.LinkUp() }))
	require.NoError(t, s.port.WatchLink(func() { up <- struct{}{} }))
	require.Error(t, s.port.WatchLink(func() {}))
	command(t, "ip", "link", "set", "rnictaplink", "up")
	require.True(t, eventually(func() bool { return len(up) == 1 }))
}

// The device completes a UDP checksum that the kernel then verifies; without it, the kernel drops
// the datagram.
func TestTapTxChecksum(t *testing.T) {
	s := tapSide(t, "rnictap1", Config{})
	require.True(t, s.port.Caps().TxChecksum)
	conn := must(net.ListenUDP("udp4", &net.UDPAddr{IP: tapKernel, Port: 7777}))(t)
	defer conn.Close()
	for i := range 20 {
		payload := []byte(fmt.Sprintf("datagram %d", i))
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: tapOurs,
			DstIP: tapKernel}
		udp := &layers.UDP{SrcPort: 5555, DstPort: 7777}
		require.NoError(t, udp.SetNetworkLayerForChecksum(ip))
		f := serialize(t, true, &layers.Ethernet{SrcMAC: tapOurMAC, DstMAC: kernelMAC(t, "rnictap1"),
			EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(payload))
		wrong := append([]byte{}, f...)
		wrong[41] ^= 0x55
		s.send(t, wrong)
		b := s.buf(t, f)
		d := s.pool.Desc(b)
		binary.BigEndian.PutUint16(s.pool.Data(b)[40:], pseudoSum(f, 17))
		d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, 34, 6
		require.Equal(t, 1, s.queue.Tx([]mem.Buf{b}))
		s.pool.Free(b)
		got := make([]byte, 100)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		n := must(conn.Read(got))(t)
		require.Equal(t, payload, got[:n],
			"a datagram with a wrong checksum would have come before this one")
	}
	s.settled(t)
}

// A frame longer than the MTU leaves as several TCP segments with right checksums.
func TestTapTxSegment(t *testing.T) {
	s := tapSide(t, "rnictap2", Config{})
	require.True(t, s.port.Caps().TxSegment)
	fd := rawSocket(t, "rnictap2")
	r := newRand(t)
	payload := frame(r, 1600)
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: 9, Protocol: layers.IPProtocolTCP, SrcIP: tapOurs,
		DstIP: tapKernel}
	tcp := &layers.TCP{SrcPort: 5555, DstPort: 7777, Seq: 1000, Ack: 1, ACK: true, Window: 1000}
	require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
	f := serialize(t, true, &layers.Ethernet{SrcMAC: tapOurMAC, DstMAC: kernelMAC(t, "rnictap2"),
		EthernetType: layers.EthernetTypeIPv4}, ip, tcp, gopacket.Payload(payload))
	b := s.buf(t, f)
	binary.BigEndian.PutUint16(s.pool.Data(b)[50:], pseudoSum(f, 6))
	d := s.pool.Desc(b)
	d.Flags, d.CsumStart, d.CsumOffset, d.GSOSize, d.HdrLen = mem.TxChecksum|mem.TxSegment,
		34, 16, 600, 54
	require.Equal(t, 1, s.queue.Tx([]mem.Buf{b}))
	s.pool.Free(b)
	var got []byte
	for _, want := range []int{600, 600, 400} {
		seg := readRaw(t, fd, func(f []byte, d mem.Desc) bool {
			return isIPv4(6)(f, d) && net.IP(f[26:30]).Equal(tapOurs)
		})
		require.Len(t, seg, 54+want)
		require.Equal(t, uint32(1000+len(got)), binary.BigEndian.Uint32(seg[38:]))
		require.Zero(t, ^onesSum(seg[14:34]), "IPv4 checksum")
		tcpLen := len(seg) - 34
		require.Zero(t, ^fold(uint32(pseudoSum(seg, 6))+uint32(onesSum(seg[34:34+tcpLen]))),
			"TCP checksum")
		got = append(got, seg[54:]...)
	}
	require.Equal(t, payload, got)
	require.Zero(t, s.queue.Stats().Bounced, "the payload is sent from its Buf")
	s.settled(t)
}

// What the device says of received checksums.
func TestTapRxChecksum(t *testing.T) {
	s := tapSide(t, "rnictap3", Config{})
	require.True(t, s.port.Caps().RxChecksum)
	fd := rawSocket(t, "rnictap3")
	v4 := &layers.IPv4{Version: 4, TTL: 64, SrcIP: tapKernel, DstIP: tapOurs}
	v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
		SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	make4 := func(proto layers.IPProtocol) []byte {
		v4.Protocol = proto
		eth := &layers.Ethernet{SrcMAC: kernelMAC(t, "rnictap3"), DstMAC: tapOurMAC,
			EthernetType: layers.EthernetTypeIPv4}
		if proto == layers.IPProtocolUDP {
			udp := &layers.UDP{SrcPort: 7, DstPort: 8}
			require.NoError(t, udp.SetNetworkLayerForChecksum(v4))
			return serialize(t, true, eth, v4, udp, gopacket.Payload("payload"))
		}
		tcp := &layers.TCP{SrcPort: 7, DstPort: 8, SYN: true}
		require.NoError(t, tcp.SetNetworkLayerForChecksum(v4))
		return serialize(t, true, eth, v4, tcp, gopacket.Payload("payload"))
	}
	tcp6 := &layers.TCP{SrcPort: 7, DstPort: 8, SYN: true}
	require.NoError(t, tcp6.SetNetworkLayerForChecksum(v6))
	frame6 := serialize(t, true, &layers.Ethernet{SrcMAC: kernelMAC(t, "rnictap3"), DstMAC: tapOurMAC,
		EthernetType: layers.EthernetTypeIPv6}, v6, tcp6, gopacket.Payload("payload"))
	flip := func(f []byte, at int) []byte {
		f = append([]byte{}, f...)
		f[at] ^= 0x10
		return f
	}
	both := mem.RxChecksumGood | mem.RxChecksumBad
	for _, c := range []struct {
		what  string
		frame []byte
		want  mem.DescFlags
	}{
		{"TCP over IPv4", make4(layers.IPProtocolTCP), mem.RxChecksumGood},
		{"TCP over IPv4, TCP damaged", flip(make4(layers.IPProtocolTCP), 56), mem.RxChecksumBad},
		{"TCP over IPv4, IP header damaged", flip(make4(layers.IPProtocolTCP), 22), mem.RxChecksumBad},
		{"UDP over IPv4", make4(layers.IPProtocolUDP), mem.RxChecksumGood},
		{"TCP over IPv6", frame6, mem.RxChecksumGood},
		{"TCP over IPv6, TCP damaged", flip(frame6, 76), mem.RxChecksumBad},
		{"neither", frame(newRand(t), 100), 0},
	} {
		must(unix.Write(fd, c.frame))(t)
		var got mem.DescFlags
		s.receive(t, 1, func(f []byte, d mem.Desc) bool {
			got = d.Flags & both
			return string(f) == string(c.frame)
		})
		require.Equal(t, c.want, got, c.what)
	}
}

// The tap's interface gets the port's MTU.
func TestTapMTU(t *testing.T) {
	s := tapSide(t, "rnictap4", Config{MTU: 1280})
	i := must(net.InterfaceByName("rnictap4"))(t)
	require.Equal(t, 1280, i.MTU)
	require.Equal(t, 1280, s.port.Caps().MTU)
	mac := s.port.MAC()
	require.NotEqual(t, [6]byte{}, mac)
}

// The driver looks for a real-time signal without a handler, to be woken by. Its handler would
// run on goroutine stacks; the Go runtime handles all the signals it considers, so it does without.
func TestTapTakesNoSignal(t *testing.T) {
	before := signalHandlers()
	tapSide(t, "rnictap5", Config{})
	require.Equal(t, before, signalHandlers())
	require.NotZero(t, before[35-1])
}

// signalHandlers returns each signal's handler as the kernel has it.
func signalHandlers() (handlers [64]uint64) {
	for i := range handlers {
		var action [4]uint64 // struct kernel_sigaction: handler, flags, restorer, mask
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(i+1), 0, uintptr(unsafe.Pointer(&action)), 8, 0,
			0)
		handlers[i] = action[0]
	}
	return handlers
}

func udpFrame(payload []byte) []byte {
	f := make([]byte, 42+len(payload))
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
	binary.BigEndian.PutUint16(f[16:], uint16(28+len(payload)))
	f[22], f[23] = 64, 17
	binary.BigEndian.PutUint16(f[38:], uint16(8+len(payload)))
	copy(f[42:], payload)
	return f
}

// pseudoSum is the folded sum of the IPv4 pseudo-header of an untagged frame.
func pseudoSum(f []byte, proto byte) uint16 {
	l4 := binary.BigEndian.Uint16(f[16:]) - 20
	return fold(uint32(onesSum(f[26:34])) + uint32(proto) + uint32(l4))
}

func onesSum(b []byte) uint16 {
	var s uint32
	for i, x := range b {
		s += uint32(x) << (8 * (1 - uint(i)%2))
	}
	return fold(s)
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
