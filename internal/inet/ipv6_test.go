package inet

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

var (
	six1 = Addr{0xfd, 0x77, 15: 1}
	six2 = Addr{0xfd, 0x77, 15: 2}
)

func hexed(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// packet6 is an IPv6 packet from six1 to six2.
func packet6(next uint8, payload []byte) []byte {
	b := make([]byte, IPv6Len+len(payload))
	h := IPv6{PayloadLen: len(payload), NextHeader: next, HopLimit: 64, Src: six1, Dst: six2}
	h.Put(b)
	copy(b[IPv6Len:], payload)
	return b
}

func TestIPv6Golden(t *testing.T) {
	b := hexed(
		t,
		`6 c d 12345 0003 06 40 fd770000000000000000000000000001 fd770000000000000000000000000002 010203 9999`)
	h, payload, d := ParseIPv6(clipped(b))
	require.Equal(t, DropNone, d)
	require.Equal(t, IPv6{TrafficClass: 0xcd, FlowLabel: 0x12345, PayloadLen: 3, NextHeader: 6,
		HopLimit: 64, Src: six1, Dst: six2}, h)
	require.Equal(t, []byte{1, 2, 3}, payload, "padding is cut")
	out := make([]byte, IPv6Len)
	h.Put(out)
	require.Equal(t, b[:IPv6Len], out)
	for n := range IPv6Len + 3 {
		_, _, d := ParseIPv6(clipped(b[:n]))
		require.NotEqual(t, DropNone, d, n)
	}
	p := gopacket.NewPacket(b, layers.LayerTypeIPv6, gopacket.Default).
		Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	require.Equal(t, uint8(0xcd), p.TrafficClass)
	require.Equal(t, uint32(0x12345), p.FlowLabel)
}

func TestIPv6Drops(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b []byte)
		want  Drop
	}{
		"version 4":        {func(b []byte) { b[0] = 0x45 }, DropVersion},
		"beyond the frame": {func(b []byte) { b[5] = 9 }, DropTotalLen},
		"from multicast":   {func(b []byte) { b[8] = 0xff }, DropSource},
		"from loopback":    {func(b []byte) { copy(b[8:], make([]byte, 15)) }, DropSource},
		"from an IPv4 address": {func(b []byte) {
			copy(b[8:], hexed(t, "00000000000000000000ffff0a000001"))
		}, DropSource},
		"to an IPv4 address": {func(b []byte) {
			copy(b[24:], hexed(t, "00000000000000000000ffff0a000001"))
		}, DropNotOurs},
		"from :: is for others": {func(b []byte) { copy(b[8:], make([]byte, 16)) }, DropNone},
	} {
		b := packet6(6, make([]byte, 8))
		c.spoil(b)
		_, _, d := ParseIPv6(b)
		require.Equal(t, c.want, d, name)
	}
}

// req: 8200-8.1-1
func TestPseudoHeader6(t *testing.T) {
	// The TCP checksum of a segment over IPv6, computed by gopacket.
	ip := &layers.IPv6{Version: 6, NextHeader: 6, HopLimit: 64, SrcIP: six1[:], DstIP: six2[:]}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 3, ACK: true}
	require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	require.NoError(
		t,
		gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
			ip, tcp, gopacket.Payload("odd")))
	h, payload, d := ParseIPv6(buf.Bytes())
	require.Equal(t, DropNone, d)
	require.Zero(t, Checksum(payload, PseudoSum(h.Src, h.Dst, ProtoTCP, len(payload))))
	payload[22] ^= 1
	require.NotZero(t, Checksum(payload, PseudoSum(h.Src, h.Dst, ProtoTCP, len(payload))))
}

// req: 8200-4-1
func TestWalkIPv6(t *testing.T) {
	const tcp = "0001 0002 00000000"
	for name, c := range map[string]struct {
		first   uint8
		payload string
		want    Chain
		drop    Drop
	}{
		"nothing": {6, tcp, Chain{Proto: 6, named: 6}, DropNone},
		"hop by hop, pads": {0, "06 00 00 00 01 02 0000" + tcp, Chain{Proto: 6, Off: 8, named: 40},
			DropNone},
		"routing, done": {43, "06 00 04 00 00000000" + tcp, Chain{Proto: 6, Off: 8, named: 40},
			DropNone},
		"routing, to go": {43, "06 00 04 01 00000000" + tcp,
			Chain{Proto: 43, named: 6, Report: true, Code: ProblemField, Pointer: 42}, DropExtension},
		"unknown, skip": {60, "06 00 1e 04 00000000" + tcp, Chain{Proto: 6, Off: 8, named: 40},
			DropNone},
		"unknown, silence": {60, "06 00 5e 04 00000000" + tcp,
			Chain{Proto: 60, named: 6, Code: ProblemOption, Pointer: 42}, DropExtension},
		"unknown, report": {60, "06 00 9e 04 00000000" + tcp,
			Chain{Proto: 60, named: 6, Report: true, Multicast: true, Code: ProblemOption, Pointer: 42},
			DropExtension},
		"unknown, unicast": {60, "06 00 00 de 03 000000" + tcp,
			Chain{Proto: 60, named: 6, Report: true, Code: ProblemOption, Pointer: 43}, DropExtension},
		"hop by hop second": {60, "00 00 01 04 00000000 06 00 01 04 00000000",
			Chain{Proto: 0, Off: 8, named: 40, Report: true, Code: ProblemNextHeader, Pointer: 40},
			DropExtension},
		"option too long":  {60, "06 00 1e 05 00000000" + tcp, Chain{Proto: 60, named: 6}, DropExtension},
		"header too long":  {60, "06 02 01 04 00000000" + tcp, Chain{Proto: 60, named: 6}, DropExtension},
		"cut":              {60, "06 00 01", Chain{Proto: 60, named: 6}, DropExtension},
		"ESP is not known": {50, tcp, Chain{Proto: 50, named: 6}, DropNone},
		"fragment": {60, "2c 00 01 04 00000000 06 00 0009 00000007" + tcp,
			Chain{Proto: 44, Off: 16, named: 40, HasFragment: true,
				Fragment: Fragment6{NextHeader: 6, Off: 8, More: true, ID: 7}}, DropNone},
	} {
		got, d := WalkIPv6(clipped(hexed(t, c.payload)), c.first, IPv6Len, false)
		require.Equal(t, c.drop, d, name)
		require.Equal(t, c.want, got, name)
	}
	long := strings.Repeat("3c 00 01 04 00000000", 20)
	_, d := WalkIPv6(hexed(t, long), 60, IPv6Len, false)
	require.Equal(t, DropExtension, d, "the chain is bounded")
	_, d = WalkIPv6(hexed(t, "06 00 0009 00000007"), 44, IPv6Len, true)
	require.Equal(t, DropExtension, d, "no fragment in a fragment")
	c, d := WalkIPv6(hexed(t, "00010002"), 99, IPv6Len+Fragment6Len, true)
	require.Equal(t, DropNone, d)
	c.UnknownProto()
	require.Equal(t, IPv6Len, c.Pointer, "the Fragment header named it")
}

func TestFragment6(t *testing.T) {
	b := make([]byte, Fragment6Len)
	f := Fragment6{NextHeader: 6, Off: 1448, More: true, ID: 0xdeadbeef}
	f.Put(b)
	require.Equal(t, hexed(t, "06 00 05a9 deadbeef"), b)
	require.Equal(t, f, parseFragment6((*[8]byte)(b)))
	require.False(t, f.Atomic())
	require.True(t, (&Fragment6{ID: 5}).Atomic())
}

func TestVLAN(t *testing.T) {
	b := make([]byte, 18)
	h := Ethernet{Dst: Broadcast, Src: MAC{2}, Type: EtherTypeIPv4}
	h.PutVLAN(b, 100)
	require.Equal(t, hexed(t, "ffffffffffff 020000000000 8100 0064 0800"), b)
	got, payload, d := ParseEthernet(b)
	require.Equal(t, DropNone, d)
	require.Equal(t, uint16(EtherTypeVLAN), got.Type)
	payload[0] |= 0xf0 // priority 7, drop eligible
	vid, typ, rest, d := ParseVLAN(payload)
	require.Equal(t, []any{uint16(100), uint16(EtherTypeIPv4), 0, DropNone},
		[]any{vid, typ, len(rest), d})
	for n := range VLANLen {
		_, _, _, d := ParseVLAN(clipped(payload[:n]))
		require.Equal(t, DropShort, d)
	}
	binary.BigEndian.PutUint16(payload[2:], 0x5ff)
	_, _, _, d = ParseVLAN(payload)
	require.Equal(t, DropEtherType, d)
}

func TestAddr6(t *testing.T) {
	require.Equal(t, "fe80::ff:fe00:1", LinkLocal(MAC{2, 0, 0, 0, 0, 1}).String())
	require.Equal(t, "ff02::1:ff00:1", six1.SolicitedNode().String())
	require.Equal(t, MAC{0x33, 0x33, 0xff, 0, 0, 1}, six1.SolicitedNode().GroupMAC())
	require.True(t, six1.InPrefix(six2, 126))
	require.False(t, six1.InPrefix(six2, 127))
	require.True(t, six1.InPrefix(six1, 128))
	require.True(t, LinkLocal(MAC{}).IsLinkLocal())
	require.False(t, ip4(169, 254, 1, 1).IsLinkLocal())
}

func FuzzParseIPv6(f *testing.F) {
	f.Add(packet6(6, make([]byte, 20)))
	f.Add(packet6(60, hexed(f, "2c 00 01 04 00000000 06 00 0009 00000007 00")))
	f.Add(packet6(0, hexed(f, "06 00 9e 04 00000000")))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = clipped(b)
		h, payload, d := ParseIPv6(b)
		if d != DropNone {
			return
		}
		require.Len(t, payload, h.PayloadLen)
		for _, again := range []bool{false, true} {
			at := IPv6Len
			if again {
				at += Fragment6Len
			}
			c, d := WalkIPv6(payload, h.NextHeader, at, again)
			require.LessOrEqual(t, c.Off, len(payload))
			if d != DropNone && c.Report {
				require.Less(t, c.Pointer, at+len(payload))
			}
		}
		MayReport6(b)
		out := make([]byte, IPv6Len)
		h.HopLimit = max(h.HopLimit, 1)
		h.Put(out)
		b[7] = max(b[7], 1)
		require.Equal(t, b[:IPv6Len], out)
	})
}
