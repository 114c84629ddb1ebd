package inet

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// resum makes an ICMP message's checksum fit.
func resum(b []byte) []byte {
	b[2], b[3] = 0, 0
	binary.BigEndian.PutUint16(b[2:], ^naiveFold(naiveSum(b, 0)))
	return b
}

// What Linux asks and what Linux answers, octet for octet; even and odd sizes.
// req: 792-2
func TestEchoReplyGolden(t *testing.T) {
	for request, reply := range map[string]string{
		"echo-request-56": "echo-reply-56", "echo-request-13": "echo-reply-13",
		"echo-request-options": "echo-reply-options",
	} {
		_, b := goldenIPv4(t, request)
		_, want := goldenIPv4(t, reply)
		require.True(t, EchoReply(b, false), request)
		require.Equal(t, want, b, request)
	}
}

// Both zeros of ones-complement verify by the definition, for every kind of octets that lead there.
func TestEchoReplyZero(t *testing.T) {
	allZero := make([]byte, 16)
	allZero[0] = ICMPEcho
	resum(allZero)
	require.True(t, EchoReply(allZero, false))
	require.Equal(t, uint16(0xffff), naiveFold(naiveSum(allZero, 0)))

	for id := range 65536 {
		b := make([]byte, ICMPLen)
		b[0] = ICMPEcho
		binary.BigEndian.PutUint16(b[4:], uint16(id))
		require.True(t, EchoReply(resum(b), false), id)
		require.Equal(t, uint16(0xffff), naiveFold(naiveSum(b, 0)), id)
		require.Equal(t, uint16(id), binary.BigEndian.Uint16(b[4:]))
	}
}

// req: 792-2
func TestEchoReplyBadChecksum(t *testing.T) {
	_, good := goldenIPv4(t, "echo-request-13")
	for bit := range len(good) * 8 {
		b := append([]byte{}, good...)
		b[bit/8] ^= 1 << (bit % 8)
		before := append([]byte{}, b...)
		require.False(t, EchoReply(b, false), bit)
		require.Equal(t, before, b, "left unchanged")
	}
	b := append([]byte{}, good...)
	b[9] ^= 1
	require.True(t, EchoReply(b, true), "the hardware said so")
}

// Neither a reply nor an unknown type draws an answer.
func TestEchoReplyOtherTypes(t *testing.T) {
	_, good := goldenIPv4(t, "echo-request-56")
	for kind := range 256 {
		b := append([]byte{}, good...)
		b[0] = byte(kind)
		require.Equal(t, kind == ICMPEcho, EchoReply(resum(b), false), kind)
	}
	b := append([]byte{}, good...)
	b[1] = 1
	require.False(t, EchoReply(resum(b), false))
	for n := range ICMPLen {
		b := clipped(good[:n])
		require.False(t, EchoReply(b, true), n)
	}
}

func TestICMPErrorGolden(t *testing.T) {
	const udp = 17
	src, dst := ip4(10, 9, 1, 10), ip4(10, 9, 2, 11)
	for name, c := range map[string]struct {
		want   ICMPError
		port   uint16
		quoted int
	}{
		"port-unreachable":      {ICMPError{Type: 3, Code: 3}, 9, 24},
		"time-exceeded":         {ICMPError{Type: 11, Code: 0}, 9, 11},
		"time-exceeded-options": {ICMPError{Type: 11, Code: 0}, 9, 19},
		"frag-needed":           {ICMPError{Type: 3, Code: 4, MTU: 1000}, 9, 528},
	} {
		_, b := goldenIPv4(t, name)
		e, ok := ParseICMPError(b)
		require.True(t, ok, name)
		quoted := e.Quoted
		e.Quoted = nil
		require.Greater(t, e.TotalLen, 20+8, name)
		e.TotalLen = 0
		c.want.Src, c.want.Dst, c.want.Proto = src, dst, udp
		require.Equal(t, c.want, e, name)
		require.Len(t, quoted, c.quoted, name)
		require.Equal(t, c.port, binary.BigEndian.Uint16(quoted[2:]), name)
	}
}

// icmpError quotes hdrLen octets of header and n of transport.
func icmpError(kind, code byte, hdrLen, n int) []byte {
	b := make([]byte, ICMPLen+hdrLen+n)
	b[0], b[1] = kind, code
	h := IPv4{TTL: 1, Proto: ProtoTCP, Src: ip4(10, 0, 0, 1), Dst: ip4(10, 0, 0, 2),
		TotalLen: hdrLen + 40}
	h.Put(b[ICMPLen:])
	b[ICMPLen] = 0x40 | byte(hdrLen/4)
	for i := range n {
		b[ICMPLen+hdrLen+i] = byte(i + 1)
	}
	return resum(b)
}

// Types 3, 11 and 12, by the quoted header's own length, with as little as eight octets after it.
// req: 792-1
func TestICMPErrorQuotedHeader(t *testing.T) {
	for _, kind := range []byte{3, 11, 12} {
		for hdrLen := IPv4Len; hdrLen <= IPv4LenMax; hdrLen += 4 {
			e, ok := ParseICMPError(clipped(icmpError(kind, 0, hdrLen, 8)))
			require.True(t, ok, "type %d, header %d", kind, hdrLen)
			require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, e.Quoted)
			require.Equal(t, uint8(ProtoTCP), e.Proto)
			require.Equal(t, ip4(10, 0, 0, 1), e.Src)
			require.Equal(t, ip4(10, 0, 0, 2), e.Dst)
			for n := range 8 {
				_, ok = ParseICMPError(clipped(icmpError(kind, 0, hdrLen, n)))
				require.False(t, ok, "%d octets of transport", n)
			}
		}
	}
}

// req: 1122-3.2.2-2
func TestICMPErrorUnknownTypes(t *testing.T) {
	for kind := range 256 {
		_, ok := ParseICMPError(icmpError(byte(kind), 0, 20, 8))
		require.Equal(t, kind == 3 || kind == 11 || kind == 12, ok, kind)
		if !ok && kind != ICMPEcho {
			require.False(t, EchoReply(icmpError(byte(kind), 0, 20, 8), false), kind)
		}
	}
}

func TestICMPErrorRejects(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"bad checksum":      func(b []byte) []byte { b[3] ^= 1; return b },
		"quoted version 6":  func(b []byte) []byte { b[8] = 0x65; return resum(b) },
		"quoted IHL 4":      func(b []byte) []byte { b[8] = 0x44; return resum(b) },
		"quoted IHL 15":     func(b []byte) []byte { b[8] = 0x4f; return resum(b) },
		"quoted TotalLen":   func(b []byte) []byte { b[11] = 27; return resum(b) },
		"later fragment":    func(b []byte) []byte { b[15] = 1; return resum(b) },
		"quotes no payload": func(b []byte) []byte { return resum(b[:28]) },
	} {
		_, ok := ParseICMPError(clipped(spoil(icmpError(3, 0, 20, 8))))
		require.False(t, ok, name)
	}
	for good, n := icmpError(12, 0, 24, 8), 0; n < len(good); n++ {
		b := clipped(good[:n])
		if n >= 4 {
			resum(b)
		}
		_, ok := ParseICMPError(b)
		require.False(t, ok, n)
	}
	e, ok := ParseICMPError(resum(append(icmpError(3, 4, 20, 40), make([]byte, 60)...)))
	require.True(t, ok)
	require.Len(t, e.Quoted, 40, "cut at the quoted packet's end")
	require.Zero(t, e.MTU, "a router older than RFC 1191")

	b := icmpError(3, 3, 20, 8)
	b[6] = 1
	e, ok = ParseICMPError(resum(b))
	require.True(t, ok)
	require.Zero(t, e.MTU, "only code 4 has one")
}

func FuzzEchoReply(f *testing.F) {
	for _, frame := range goldens(f) {
		f.Add(frame[34:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = clipped(b)
		before := append([]byte{}, b...)
		if !EchoReply(b, false) {
			require.Equal(t, before, b)
			return
		}
		require.Equal(t, uint16(0xffff), naiveFold(naiveSum(b, 0)))
		require.Equal(t, before[4:], b[4:])
		require.Equal(t, byte(ICMPEchoReply), b[0])
	})
}

func FuzzParseICMPError(f *testing.F) {
	for _, frame := range goldens(f) {
		f.Add(frame[34:])
	}
	f.Add(icmpError(12, 0, 60, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = clipped(b)
		for range 2 {
			if e, ok := ParseICMPError(b); ok {
				require.GreaterOrEqual(t, len(e.Quoted), 8)
				require.True(t, e.Src.Is4() && e.Dst.Is4())
			}
			if len(b) < 4 {
				return
			}
			resum(b) // the second time past the checksum
		}
	})
}
