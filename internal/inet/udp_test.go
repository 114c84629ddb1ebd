package inet

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// What Put writes Parse reads; whatever octet is another, or missing, is found, and a checksum of 0
// stands for none, by IPv4 alone. One that is left to a device is told from a wrong one.
func TestUDP(t *testing.T) {
	const golden = "00070009000b2763" + "616263"
	src4, dst4 := AddrFrom(netip.MustParseAddr("10.0.0.1")), AddrFrom(netip.MustParseAddr("10.0.0.2"))
	src6, dst6 := AddrFrom(netip.MustParseAddr("fd00::1")), AddrFrom(netip.MustParseAddr("fd00::2"))
	b := []byte("\x00\x00\x00\x00\x00\x00\x00\x00abc")
	h := UDP{SrcPort: 7, DstPort: 9, Length: len(b)}
	h.Put(b, &src4, &dst4)
	require.Equal(t, golden, hex.EncodeToString(b))
	for _, x := range [][2]*Addr{{&src4, &dst4}, {&src6, &dst6}} {
		h.Put(b, x[0], x[1])
		got, payload, drop := ParseUDP(append(b[:len(b):len(b)], "padding"...), x[0], x[1], false)
		require.Equal(t, DropNone, drop)
		require.Equal(t, h, got)
		require.Equal(t, "abc", string(payload))
		for i := range b {
			c := append([]byte(nil), b...)
			c[i] ^= 0x10
			_, _, drop = ParseUDP(c, x[0], x[1], false)
			require.NotEqual(t, DropNone, drop, "octet %d", i)
			_, _, drop = ParseUDP(b[:i], x[0], x[1], false)
			require.NotEqual(t, DropNone, drop, "%d octets", i)
		}
		b[6], b[7] = 0, 0
		_, _, drop = ParseUDP(b, x[0], x[1], true)
		require.Equal(t, map[bool]Drop{true: DropNone, false: DropChecksum}[x[1].Is4()], drop)
	}
	for _, x := range [][2]*Addr{{&src4, &dst4}, {&src6, &dst6}} {
		h = UDP{SrcPort: 7, DstPort: 9, Length: len(b)}
		h.Put(b, x[0], x[1])
		binary.BigEndian.PutUint16(b[6:], Fold(PseudoSum(*x[0], *x[1], ProtoUDP, len(b))))
		_, _, drop := ParseUDP(b, x[0], x[1], false)
		require.Equal(t, DropChecksumLeft, drop)
		_, _, drop = ParseUDP(b, x[0], x[1], true)
		require.Equal(t, DropNone, drop)
	}
	// the sum of the rest is 0xffff, and so the checksum would be 0
	z := make([]byte, UDPLen+2)
	h = UDP{Length: len(z)}
	h.Put(z, &src4, &dst4)
	z[UDPLen], z[UDPLen+1] = z[6], z[7]
	h.Put(z, &src4, &dst4)
	require.Equal(t, []byte{0xff, 0xff}, z[6:8])
	_, _, drop := ParseUDP(z, &src4, &dst4, false)
	require.Equal(t, DropNone, drop)
}

// Whatever comes is refused or has its length.
func FuzzUDP(f *testing.F) {
	src, dst := AddrFrom(netip.MustParseAddr("10.0.0.1")), AddrFrom(netip.MustParseAddr("10.0.0.2"))
	b := make([]byte, 12)
	(&UDP{SrcPort: 1, DstPort: 2, Length: 12}).Put(b, &src, &dst)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, drop := ParseUDP(b, &src, &dst, false)
		if drop == DropNone {
			require.Len(t, payload, h.Length-UDPLen)
		}
	})
}
