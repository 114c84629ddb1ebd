package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func nameOf(addr string, number uint32) name {
	return name{gid: netip.MustParseAddr(addr).As16(), number: number}
}

// The private data, octet for octet as hello has it, and back.
func TestHello(t *testing.T) {
	h := hello{answer: comeAgain, flags: 0x0101,
		to: nameOf("10.0.0.1", 0x123456), from: nameOf("fd00::2", 0x654321)}
	b := append([]byte{'r', 'n', 'q', 'p', 1, 1, 1, 1, 0, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 2)
	require.Equal(t, b, h.put())
	got := must(parseHello(b))(t)
	require.Equal(t, h, got)
	for n := range b {
		_, err := parseHello(b[:n])
		require.Error(t, err, n)
	}

	h.flags |= helloProven
	h.proof = proof{nonce: [16]byte{0: 1, 15: 2}, challenge: [16]byte{0: 3, 15: 4},
		code: [32]byte{0: 5, 31: 6}}
	long := append(append([]byte(nil), b...), make([]byte, proofLen)...)
	long[7] = 3
	for at, v := range map[int]byte{48: 1, 63: 2, 64: 3, 79: 4, 80: 5, 111: 6} {
		long[at] = v
	}
	require.Equal(t, long, h.put())
	got = must(parseHello(long))(t)
	require.Equal(t, h, got)
	for n := range long {
		_, err := parseHello(long[:n])
		require.Error(t, err, n)
	}
	for at, v := range map[int]byte{0: 'R', 3: 'q', 4: 2, 5: byte(answersEnd)} {
		bad := append([]byte(nil), b...)
		bad[at] = v
		_, err := parseHello(bad)
		require.Equal(t, errForeign, err, at)
	}
	_, err := parseHello(append(b, 0))
	require.Error(t, err)
}

// The order of names decides who connects, so it is the same at both ends.
func TestNamesCompare(t *testing.T) {
	order := []name{nameOf("10.0.0.1", 5), nameOf("10.0.0.1", 0xffffff), nameOf("10.0.0.2", 2),
		nameOf("fd00::1", 1)}
	for i, a := range order {
		for j, b := range order {
			require.Equal(t, i < j, a.compare(b) < 0, "%v, %v", a, b)
			require.Equal(t, i == j, a.compare(b) == 0, "%v, %v", a, b)
		}
		require.True(t, a.at(a.addr()))
		require.Equal(t, i < 2, a.at(order[0].addr()))
	}
	require.True(t, nameOf("fe80::1", 1).at(netip.MustParseAddr("fe80::1%eth0")))
	require.Equal(t, "0xffffff at 10.0.0.1", order[1].String())
	require.Equal(t, netip.MustParseAddrPort("10.0.0.1:32767"), order[1].port())
}

// Some of the table's rows, the first and the last among them.
func TestRNRTime(t *testing.T) {
	for code, us := range map[uint8]int{0: 655360, 1: 10, 2: 20, 3: 30, 4: 40, 5: 60, 12: 640, 13: 960,
		14: 1280, 30: 327680, 31: 491520} {
		require.Equal(t, time.Duration(us)*time.Microsecond, rnrTime(code), "code %d", code)
	}
}
