package engine

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

var goldenUD = udHeader{flags: udSolicited | udImmediate, destination: 0x123456, source: 0xabcdef,
	qkey: 0x11111111, immediate: [4]byte{1, 2, 3, 4}}

const goldenUDOctets = "726e554401030000" + "00123456" + "00abcdef" + "11111111" + "01020304"

// The header in octets, both ways; each one that is shorter, and each field that cannot be, is
// refused.
func TestUDHeader(t *testing.T) {
	var b [udHeaderLen]byte
	goldenUD.put(&b)
	require.Equal(t, goldenUDOctets, hex.EncodeToString(b[:]))
	var h udHeader
	require.True(t, h.parse(append(b[:], "message"...)))
	require.Equal(t, goldenUD, h)
	for n := range len(b) {
		require.False(t, h.parse(b[:n]))
	}
	for at, bad := range map[int]byte{0: 'x', 3: 'd', 4: 2, 5: 4, 6: 1, 7: 1, 8: 1, 12: 1} {
		c := b
		c[at] = bad
		require.False(t, h.parse(c[:]), "octet %d", at)
	}
	b[5] = 0
	require.False(t, h.parse(b[:]), "immediate data that is none")
}

// What is parsed is what was put.
func FuzzUDHeader(f *testing.F) {
	octets, _ := hex.DecodeString(goldenUDOctets)
	f.Add(octets)
	f.Fuzz(func(t *testing.T, data []byte) {
		var h udHeader
		if !h.parse(data) {
			return
		}
		var b [udHeaderLen]byte
		h.put(&b)
		require.Equal(t, data[:udHeaderLen], b[:])
	})
}

// What a receive buffer begins with is the IP header, IPv4's in the second half, with its checksum.
func TestGRH(t *testing.T) {
	of := func(s string) (g gid) { return netip.MustParseAddr(s).As16() }
	for _, x := range []struct{ source, destination, want string }{
		{"10.9.0.1", "10.9.0.2", "0000000000000000000000000000000000000000" +
			"4508003800004000401126990a0900010a090002"},
		{"fd00::1", "fd00::2", "60800000" + "0024" + "1140" + "fd000000000000000000000000000001" +
			"fd000000000000000000000000000002"},
	} {
		var b [grhLen]byte
		s, d := of(x.source), of(x.destination)
		putGRH(&b, &s, &d, 8, udHeaderLen+4)
		require.Equal(t, x.want, hex.EncodeToString(b[:]))
	}
}
