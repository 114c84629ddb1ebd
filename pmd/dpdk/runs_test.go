//go:build dpdk

package dpdk

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// flow makes segments of one connection.
type flow struct {
	v6, tag bool
	port    uint16
	seq     uint32
}

// segment is the connection's next, complete; l4 is where TCP begins.
func (c *flow) segment(t *testing.T, dst net.HardwareAddr, payload []byte,
	psh bool) (frame []byte, l4 int) {
	t.Helper()
	tcp := &layers.TCP{SrcPort: layers.TCPPort(c.port), DstPort: 7, Seq: c.seq, Ack: 77, ACK: true,
		PSH: psh, Window: 1000}
	c.seq += uint32(len(payload))
	eth := &layers.Ethernet{SrcMAC: tapOurMAC, DstMAC: dst, EthernetType: layers.EthernetTypeIPv4}
	ls := []gopacket.SerializableLayer{eth}
	if c.tag {
		eth.EthernetType = layers.EthernetTypeDot1Q
		ls = append(ls, &layers.Dot1Q{VLANIdentifier: 9, Type: layers.EthernetTypeIPv4})
		l4 += 4
	}
	if c.v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: net.ParseIP("fd00::2"), DstIP: net.ParseIP("fd00::1")}
		require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
		return serialize(t, true, append(ls, ip, tcp, gopacket.Payload(payload))...), l4 + 54
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment,
		Protocol: layers.IPProtocolTCP, SrcIP: tapOurs, DstIP: tapKernel}
	require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
	return serialize(t, true, append(ls, ip, tcp, gopacket.Payload(payload))...), l4 + 34
}

// asked puts a frame whose checksum is right into a Buf as a sender does that leaves it to the
// device.
func (s *side) asked(t *testing.T, f []byte, l4 int) mem.Buf {
	t.Helper()
	b := s.buf(t, f)
	tcpSum := onesSum(f[l4:]) // with its checksum: the complement of the pseudo-header's sum
	binary.BigEndian.PutUint16(s.pool.Data(b)[l4+16:], ^tcpSum)
	d := s.pool.Desc(b)
	d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, uint16(l4), 16
	return b
}

// Runs of equal segments go to the device as one frame each and come out as the segments they were,
// octet for octet, except for IPv4's identification.
func TestTapSegmentRuns(t *testing.T) {
	s := tapSide(t, "rnictapruns", Config{})
	fd := rawSocket(t, "rnictapruns")
	dst := kernelMAC(t, "rnictapruns")
	r := newRand(t)
	var a, b, six = flow{port: 1000, seq: ^uint32(0) - 3000}, flow{port: 1001},
		flow{v6: true, port: 1002}
	var want [][]byte
	var bufs []mem.Buf
	put := func(c *flow, octets int, psh bool) {
		f, l4 := c.segment(t, dst, frame(r, octets), psh)
		want = append(want, f)
		bufs = append(bufs, s.asked(t, f, l4))
	}
	for range 6 {
		put(&a, 1000, false)
	}
	put(&a, 1000, true) // the last of its run
	put(&a, 1000, false)
	put(&a, 400, false) // another length: alone, as is the one before
	for range 20 {
		put(&b, 500, false)
	}
	put(&six, 500, false) // which librte_gso does not cut
	put(&six, 500, false)
	require.Equal(t, len(bufs), s.queue.Tx(bufs))
	s.pool.FreeN(bufs)
	for i, w := range want {
		got := readRaw(t, fd, func(f []byte, d mem.Desc) bool {
			return len(f) > 60 && (f[12] == 8 && f[23] == 6 || f[12] == 0x86 && f[20] == 6)
		})
		if got[12] == 8 {
			require.Zero(t, ^onesSum(got[14:34]), "IPv4 checksum of segment %d", i)
			copy(got[18:20], w[18:20])
			copy(got[24:26], w[24:26])
		}
		require.Equal(t, w, got, "segment %d", i)
	}
	st := s.queue.Stats()
	require.EqualValues(t, 2, st.Runs)
	require.EqualValues(t, len(want), st.TxFrames)
	require.Zero(t, st.TxErrors+st.Bounced)
	s.settled(t)
}

// What ends a run, and what begins none.
func TestRunLength(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0"}, 256, 2048)
	r := runs{framesMax: 8, frameMax: 1522}
	dst := net.HardwareAddr{2, 0, 0, 0, 0, 5}
	octets := bytes.Repeat([]byte{7}, 200)
	for _, c := range []flow{{port: 1}, {port: 1, v6: true}, {port: 1, tag: true}} {
		run := func(change func(i int, f []byte, d *mem.Desc)) int {
			c.seq = 5
			var bufs []mem.Buf
			for i := range 5 {
				f, l4 := c.segment(t, dst, octets, false)
				b := s.asked(t, f, l4)
				change(i, s.pool.Data(b), s.pool.Desc(b))
				bufs = append(bufs, b)
			}
			n, hdr := r.length(s.pool, bufs)
			if n > 1 {
				require.Equal(t, len(s.pool.Data(bufs[0]))-len(octets), hdr)
			}
			s.pool.FreeN(bufs)
			return n
		}
		_, l4 := c.segment(t, dst, octets, false)
		require.Equal(t, 5, run(func(int, []byte, *mem.Desc) {}))
		for at := range l4 + 20 { // another octet anywhere in the headers of the third
			want := 2
			if n := run(func(i int, f []byte, _ *mem.Desc) {
				if i == 2 {
					f[at] ^= 0x40
				}
			}); n != want {
				t.Fatalf("%+v: a change of octet %d leaves a run of %d", c, at, n)
			}
		}
		require.Equal(t, 3, run(func(i int, f []byte, _ *mem.Desc) {
			if i == 2 {
				f[l4+13] |= tcpPSH
			}
		}), "PSH is on the last of a run")
		require.Equal(t, 3, run(func(i int, f []byte, _ *mem.Desc) {
			if i == 2 {
				f[l4+13] |= tcpFIN
			}
		}), "and FIN")
		for flag := range 8 {
			if byte(1)<<flag == tcpACK {
				continue
			}
			require.Equal(t, 1, run(func(i int, f []byte, _ *mem.Desc) {
				f[l4+13] |= 1 << flag
			}), "none begins with flag %#x", 1<<flag)
		}
		require.Equal(t, 2, run(func(i int, _ []byte, d *mem.Desc) {
			if i == 2 {
				d.Flags = 0
			}
		}), "without the checksum asked for")
		require.Equal(t, 1, run(func(i int, _ []byte, d *mem.Desc) {
			d.Flags = mem.TxChecksum | mem.TxSegment
		}))
		require.Equal(t, 2, run(func(i int, _ []byte, d *mem.Desc) {
			if i == 2 {
				d.Len--
			}
		}), "shorter")
		r.framesMax = 4
		require.Equal(t, 4, run(func(int, []byte, *mem.Desc) {}))
		r.framesMax, r.frameMax = 8, 100
		require.Equal(t, 1, run(func(int, []byte, *mem.Desc) {}), "longer than the driver cuts")
		r.frameMax = 1522
	}
}
