package inet

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// ipv4Packet is a good 20-octet header and four octets of payload, for a test to spoil; fix makes
// the checksum fit again.
func ipv4Packet() []byte {
	b := make([]byte, 24)
	h := IPv4{TTL: 1, Proto: ProtoTCP, Src: ip4(10, 9, 1, 10), Dst: ip4(10, 9, 1, 1), TotalLen: 24}
	h.Put(b)
	copy(b[20:], "data")
	return b
}

func fix(b []byte) []byte {
	hdr := b[:int(b[0]&15)*4]
	hdr[10], hdr[11] = 0, 0
	binary.BigEndian.PutUint16(hdr[10:], ^naiveFold(naiveSum(hdr, 0)))
	return b
}

// Every frame of the capture without options comes back octet for octet, and every header's
// checksum is right.
func TestIPv4GoldenRoundTrip(t *testing.T) {
	n := 0
	for name, frame := range goldens(t) {
		if binary.BigEndian.Uint16(frame[12:]) != EtherTypeIPv4 {
			continue
		}
		h, _, d := ParseIPv4(frame[14:], false)
		if d != DropFragment {
			require.Equal(t, DropNone, d, name)
		}
		if h.HdrLen != IPv4Len {
			continue
		}
		var b [IPv4Len]byte
		h.Put(b[:])
		require.Equal(t, frame[14:34], b[:], name)
		n++
	}
	require.Greater(t, n, 8)
}

func TestIPv4Truncated(t *testing.T) {
	for _, name := range []string{"tcp-syn", "echo-request-options"} {
		packet := golden(t, name)[14:]
		hdrLen := int(packet[0]&15) * 4
		for n := range packet {
			want := DropTotalLen
			if n < IPv4Len {
				want = DropShort
			} else if n < hdrLen {
				want = DropHeaderLen
			}
			_, payload, d := ParseIPv4(clipped(packet[:n]), false)
			require.Equal(t, want, d, "%s cut to %d", name, n)
			require.Nil(t, payload)
		}
	}
}

// req: 1122-3.2.1-1
func TestIPv4Malformed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b []byte)
		want  Drop
	}{
		"version 6":                  {func(b []byte) { b[0] = 0x65 }, DropVersion},
		"version 0":                  {func(b []byte) { b[0] = 0x05 }, DropVersion},
		"IHL 4":                      {func(b []byte) { b[0] = 0x44 }, DropHeaderLen},
		"IHL 0":                      {func(b []byte) { b[0] = 0x40 }, DropHeaderLen},
		"header beyond the frame":    {func(b []byte) { b[0] = 0x47 }, DropHeaderLen},
		"total length under header":  {func(b []byte) { b[3] = 19 }, DropTotalLen},
		"total length 0":             {func(b []byte) { b[3] = 0 }, DropTotalLen},
		"total length beyond frame":  {func(b []byte) { b[3] = 25 }, DropTotalLen},
		"total length far beyond":    {func(b []byte) { b[2] = 0xff }, DropTotalLen},
		"total length under options": {func(b []byte) { b[0], b[3] = 0x46, 23 }, DropTotalLen},
	} {
		b := ipv4Packet()
		c.spoil(b)
		if int(b[0]&15)*4 >= IPv4Len && int(b[0]&15)*4 <= len(b) {
			fix(b)
		}
		_, payload, d := ParseIPv4(clipped(b), false)
		require.Equal(t, c.want, d, name)
		require.Nil(t, payload, name)
	}
	_, _, d := ParseIPv4(ipv4Packet(), false)
	require.Equal(t, DropNone, d, "the unspoiled packet")
}

// Every single-bit error of the header is found, with options and without.
// req: 1122-3.2.1-1
func TestIPv4ChecksumFindsEachBit(t *testing.T) {
	for _, name := range []string{"tcp-syn", "echo-request-options"} {
		good := golden(t, name)[14:]
		for bit := range int(good[0]&15) * 4 * 8 {
			b := append([]byte{}, good...)
			b[bit/8] ^= 1 << (bit % 8)
			_, _, d := ParseIPv4(b, false)
			require.NotEqual(t, DropNone, d, "%s bit %d", name, bit)
		}
	}
}

func TestIPv4ChecksumGood(t *testing.T) {
	b := ipv4Packet()
	b[10] ^= 0x40
	_, _, d := ParseIPv4(b, false)
	require.Equal(t, DropChecksum, d)
	h, payload, d := ParseIPv4(b, true) // the hardware said so
	require.Equal(t, DropNone, d)
	require.Equal(t, 24, h.TotalLen)
	require.Equal(t, "data", string(payload))
}

func TestIPv4PaddingIsCut(t *testing.T) {
	b := append(ipv4Packet(), 0xee, 0xee, 0xee)
	_, payload, d := ParseIPv4(b, false)
	require.Equal(t, DropNone, d)
	require.Equal(t, "data", string(payload))
}

// Options are stepped over by IHL, legal or not: the payload stands after the header whatever its
// length.
// req: 791-3.1-1
func TestIPv4OptionsSkipped(t *testing.T) {
	for ihl := 5; ihl <= 15; ihl++ {
		for _, option := range [][]byte{
			{1, 1, 1, 1},       // no-operation
			{0, 0, 0, 0},       // end of list
			{7, 0, 4, 0},       // record route of length 0
			{0x83, 255, 4, 10}, // source route of length 255, beyond the header
			{0x9e, 1, 0x9e, 1}, // unknown, length 1
		} {
			b := make([]byte, ihl*4, ihl*4+4)
			copy(b, ipv4Packet()[:20])
			for i := 20; i < len(b); i += 4 {
				copy(b[i:], option)
			}
			b = append(b, "data"...)
			b[0] = 0x40 | byte(ihl)
			binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
			h, payload, d := ParseIPv4(clipped(fix(b)), false)
			require.Equal(t, DropNone, d, "IHL %d, option %d", ihl, option[0])
			require.Equal(t, ihl*4, h.HdrLen)
			require.Equal(t, "data", string(payload))
		}
	}
	h, payload := goldenIPv4(t, "echo-request-options")
	require.Equal(t, 32, h.HdrLen)
	require.Len(t, payload, 12)
}

// A source that cannot be one host is refused (RFC 1122, 3.2.1.3).
func TestIPv4Source(t *testing.T) {
	for src, want := range map[[4]byte]Drop{
		{10, 0, 0, 1}: DropNone, {223, 1, 1, 1}: DropNone, {0, 0, 0, 0}: DropSource,
		{255, 255, 255, 255}: DropSource, {224, 0, 0, 1}: DropSource,
		{239, 1, 2, 3}: DropSource, {127, 0, 0, 1}: DropSource, {127, 9, 9, 9}: DropSource,
	} {
		b := ipv4Packet()
		copy(b[12:], src[:])
		_, payload, d := ParseIPv4(fix(b), false)
		require.Equal(t, want, d, src)
		require.Equal(t, want != DropNone, payload == nil)
	}
}

// A fragment is a Drop of its own, with all there is to know of it; DF alone is none.
func TestIPv4Fragment(t *testing.T) {
	first, last := golden(t, "fragment-first")[14:], golden(t, "fragment-last")[14:]
	h, payload, d := ParseIPv4(first, false)
	require.Equal(t, DropFragment, d)
	require.True(t, h.MF)
	require.Zero(t, h.FragOff)
	require.Len(t, payload, 976)
	next := len(payload)

	h, payload, d = ParseIPv4(last, false)
	require.Equal(t, DropFragment, d)
	require.False(t, h.MF)
	require.Equal(t, next, h.FragOff)
	require.Len(t, payload, 1508-976)

	first[11] ^= 1 // a broken fragment is broken first
	_, _, d = ParseIPv4(first, false)
	require.Equal(t, DropChecksum, d)
}

// req: 1122-3.2.1.7-1
func TestIPv4TTL(t *testing.T) {
	for _, ttl := range []byte{0, 1, 2, 255} {
		b := ipv4Packet()
		b[8] = ttl
		h, _, d := ParseIPv4(fix(b), false)
		require.Equal(t, DropNone, d, "received TTL %d", ttl)
		require.Equal(t, ttl, h.TTL)

		h.Put(b)
		want := ttl
		if ttl == 0 {
			want = DefaultTTL
		}
		require.Equal(t, want, b[8], "0 is never sent")
	}
}

func TestIPv4PutPanics(t *testing.T) {
	good := IPv4{Src: ip4(10, 0, 0, 1), Dst: ip4(10, 0, 0, 2), TotalLen: 20}
	b := make([]byte, IPv4Len)
	require.NotPanics(t, func() { good.Put(b) })
	for name, spoil := range map[string]func(h *IPv4){
		"no length":      func(h *IPv4) { h.TotalLen = 0 },
		"length 65536":   func(h *IPv4) { h.TotalLen = 65536 },
		"offset 4":       func(h *IPv4) { h.FragOff = 4 },
		"offset 65536":   func(h *IPv4) { h.FragOff = 65536 },
		"offset below 0": func(h *IPv4) { h.FragOff = -8 },
		"no source":      func(h *IPv4) { h.Src = Addr{} },
		"IPv6":           func(h *IPv4) { h.Dst = Addr{0xfe, 0x80} },
	} {
		h := good
		spoil(&h)
		require.Panics(t, func() { h.Put(b) }, name)
	}
	require.Panics(t, func() { good.Put(b[:19]) })
}

func FuzzParseIPv4(f *testing.F) {
	for _, frame := range goldens(f) {
		f.Add(frame[14:], false)
		f.Add(frame[14:], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, checksumGood bool) {
		b = clipped(b)
		h, payload, d := ParseIPv4(b, checksumGood)
		if d != DropNone && d != DropFragment {
			require.Nil(t, payload)
			return
		}
		require.Equal(t, h.TotalLen-h.HdrLen, len(payload))
		require.LessOrEqual(t, h.TotalLen, len(b))
		if len(payload) > 0 {
			require.Same(t, &b[h.HdrLen], &payload[0])
		}
		if h.HdrLen != IPv4Len || h.TTL == 0 || checksumGood {
			return
		}
		out := make([]byte, IPv4Len)
		h.Put(out)
		// Not kept: the reserved flag; and 0 and 0xffff in the checksum both verify.
		reserved := b[6]&0x80 != 0
		if !reserved && binary.BigEndian.Uint16(b[10:]) != 0xffff {
			require.Equal(t, b[:IPv4Len], out)
		}
	})
}

func TestIPv4Allocs(t *testing.T) {
	b := golden(t, "tcp-syn")
	out := make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		e, packet, _ := ParseEthernet(b)
		h, _, _ := ParseIPv4(packet, false)
		e.Put(out)
		h.Put(out[14:])
	}))
}
