package inet

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// resum6 makes the checksum of an ICMPv6 message from six1 to six2 fit.
func resum6(b []byte) []byte {
	b[2], b[3] = 0, 0
	binary.BigEndian.PutUint16(b[2:], Checksum(b, PseudoSum(six1, six2, ProtoICMPv6, len(b))))
	return b
}

// req: 4443-4.2-1
func TestEchoReply6(t *testing.T) {
	for n := range 300 {
		b := make([]byte, ICMPLen+n)
		copy(b, hexed(t, "80 00 0000 1234 0001"))
		for i := range n {
			b[ICMPLen+i] = byte(i * 7)
		}
		resum6(b)
		want := append([]byte{}, b...)
		for bit := range len(b) * 8 {
			c := append([]byte{}, b...)
			c[bit/8] ^= 1 << (bit % 8)
			before := append([]byte{}, c...)
			require.False(t, EchoReply6(c, six1, six2))
			require.Equal(t, before, c)
			if bit > 100 {
				break
			}
		}
		require.True(t, EchoReply6(b, six1, six2))
		require.Equal(t, want[4:], b[4:])
		require.Equal(t, []byte{129, 0}, b[:2])
		require.Zero(t, Checksum(b, PseudoSum(six2, six1, ProtoICMPv6, len(b))))
	}
}

// error6 quotes packet in an error of a router (six1) to six2, which sent it.
func error6(typ, code uint8, word uint32, packet []byte) []byte {
	b := make([]byte, ICMPErrorMax)
	return b[:PutICMP6Error(b, typ, code, word, packet, six1, six2)]
}

// req: 4443-2.4-2
func TestParseICMP6Error(t *testing.T) {
	segment := packet6(ProtoTCP, hexed(t, "0007 0008 01020304 00000000 50100000 0000 0000"))
	for typ := range 256 {
		e, ok := ParseICMP6Error(clipped(error6(uint8(typ), 1, 1300, segment)), six1, six2)
		require.Equal(t, typ < 128, ok, "type %d: errors go up, known or not; informational ones do not",
			typ)
		if ok {
			require.Equal(t, uint8(ProtoTCP), e.Proto)
			require.Equal(t, []Addr{six1, six2}, []Addr{e.Src, e.Dst})
			require.Equal(t, uint16(7), binary.BigEndian.Uint16(e.Quoted))
			require.Equal(t, len(segment), e.TotalLen)
			require.Equal(t, typ == ICMP6TooBig, e.MTU == 1300)
		}
	}
	b := error6(1, 0, 0, packet6(60, hexed(t, "06 00 01 04 00000000 0007 0008 01020304")))
	e, ok := ParseICMP6Error(b, six1, six2)
	require.True(t, ok)
	require.Equal(t, hexed(t, "0007 0008 01020304"), e.Quoted, "after the extension headers")
	for n := range len(b) {
		c := clipped(b[:n])
		if n >= 4 {
			resum6(c)
		}
		_, ok := ParseICMP6Error(c, six1, six2)
		require.False(t, ok, n)
	}
	b[20] ^= 1
	_, ok = ParseICMP6Error(b, six1, six2)
	require.False(t, ok, "checksum")
}

// As much is quoted as fits into 1280 octets, and 576 of IPv4; gopacket reads both.
// req: 4443-2.4-1
func TestPutICMPErrors(t *testing.T) {
	big := packet6(ProtoUDP, make([]byte, 1400))
	b := error6(ICMP6ParameterProblem, ProblemNextHeader, 40, big)
	require.Len(t, b, IPv6MTUMin-IPv6Len)
	require.Equal(t, big[:len(b)-ICMPLen], b[ICMPLen:])
	require.Equal(t, hexed(t, "04 01"), b[:2])
	require.Equal(t, uint32(40), binary.BigEndian.Uint32(b[4:]))
	p := gopacket.NewPacket(packet6(ProtoICMPv6, b), layers.LayerTypeIPv6, gopacket.Default)
	require.Equal(t, layers.CreateICMPv6TypeCode(4, 1),
		p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6).TypeCode)
	require.Zero(t, Checksum(b, PseudoSum(six1, six2, ProtoICMPv6, len(b))))

	old := make([]byte, 1400)
	h := IPv4{TTL: 9, Proto: ProtoUDP, Src: ip4(10, 0, 0, 1), Dst: ip4(10, 0, 0, 2), TotalLen: 1400}
	h.Put(old)
	b = make([]byte, ICMPErrorMax)
	b = b[:PutICMPError(b, ICMPUnreachable, ICMPPortUnreachable, 0, old)]
	require.Len(t, b, 576-IPv4Len)
	require.Zero(t, Checksum(b, 0))
	e, ok := ParseICMPError(b)
	require.True(t, ok)
	require.Equal(t, uint8(ICMPPortUnreachable), e.Code)
}

// req: 1122-3.2.2-1
func TestMayReport(t *testing.T) {
	packet := func(proto uint8, off int, first byte) []byte {
		b := make([]byte, 40)
		h := IPv4{Proto: proto, FragOff: off, Src: ip4(10, 0, 0, 1), Dst: ip4(10, 0, 0, 2), TotalLen: 40}
		h.Put(b)
		b[20] = first
		return b
	}
	require.True(t, MayReport(packet(ProtoUDP, 0, 0)))
	require.False(t, MayReport(packet(ProtoUDP, 8, 0)), "a later fragment")
	for typ := range 256 {
		query := typ == 0 || typ == 8 || typ >= 13 && typ <= 18
		require.Equal(t, query, MayReport(packet(ProtoICMP, 0, byte(typ))), typ)
	}
	require.False(t, MayReport(packet(ProtoICMP, 0, 0)[:20]))
}

// req: 4443-2.4-1
func TestMayReport6(t *testing.T) {
	require.True(t, MayReport6(packet6(ProtoUDP, make([]byte, 8))))
	for typ := range 256 {
		want := typ >= 128 && typ != 137
		require.Equal(t, want, MayReport6(packet6(ProtoICMPv6, []byte{byte(typ), 0})), typ)
		after := append(hexed(t, "3a 00 01 04 00000000"), byte(typ))
		require.Equal(t, want, MayReport6(packet6(60, after)), typ)
		first := append(hexed(t, "3a 00 0001 00000007"), byte(typ))
		require.Equal(t, want, MayReport6(packet6(44, first)), typ)
	}
	require.False(t, MayReport6(packet6(44, hexed(t, "11 00 0008 00000007 00"))), "a later fragment")
	require.False(t, MayReport6(packet6(ProtoICMPv6, nil)))
}

func FuzzICMP6(f *testing.F) {
	f.Add(error6(1, 4, 0, packet6(ProtoTCP, make([]byte, 20))))
	f.Add(hexed(f, "80 00 0000 1234 0001 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		b = resum6(clipped(b))
		if e, ok := ParseICMP6Error(b, six1, six2); ok {
			require.GreaterOrEqual(t, len(e.Quoted), 8)
			require.False(t, e.Src.Is4() || e.Dst.Is4())
			m := e.Believed()
			require.True(t, m == 0 || m >= IPv6MTUMin)
		}
		EchoReply6(b, six1, six2)
	})
}
