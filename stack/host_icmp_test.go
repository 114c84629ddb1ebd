package stack

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// What we cannot take is reported, by both families, and no oftener than the rate.
// req: 8200-4-1, 4443-2.4-1
func TestICMPErrorsOut(t *testing.T) {
	l := newLab(t, sixes)
	four := func(proto uint8) []byte {
		return packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, proto, make([]byte, 20))
	}
	six := func(next uint8, text string) []byte {
		return packet6(l.a.mac, l.b.mac, addr6(0), addr6(1), next, 64,
			append(unhex(t, text), make([]byte, 20)...))
	}
	for _, c := range []struct {
		name       string
		frame      []byte
		typ, code  byte
		word       uint32
		reassembly bool
	}{
		{name: "UDP", frame: four(17), typ: 3, code: 3},
		{name: "protocol 99", frame: four(99), typ: 3, code: 2},
		{name: "UDP6", frame: six(17, ""), typ: 1, code: 4},
		{name: "next header 99", frame: six(99, ""), typ: 4, code: 1, word: 6},
		{name: "next header 99 after options", frame: six(60, "63 00 01 04 00000000"), typ: 4,
			code: 1, word: 40},
		{name: "option", frame: six(60, "06 00 9e 04 00000000"), typ: 4, code: 2, word: 42},
		{name: "next header 99 in an atomic fragment", frame: six(44, "63 00 0000 00000007"), typ: 4,
			code: 1, word: 40},
		{name: "routing header", frame: six(43, "06 00 00 01 00000000"), typ: 4, code: 0, word: 42},
		{name: "fragment of odd length", frame: six(44, "06 00 0001 00000007 00"), typ: 4,
			code: 0, word: 4},
	} {
		got := l.answers(l.a, l.b, c.frame)
		require.Len(t, got, 1, c.name)
		at := 34
		if got[0][12] != 8 {
			at = 54
		}
		require.Equal(t, []byte{c.typ, c.code}, got[0][at:at+2], c.name)
		require.Equal(t, c.word, binary.BigEndian.Uint32(got[0][at+4:]), c.name)
		require.Equal(t, c.frame[14:], got[0][at+8:], c.name)
		require.Equal(t, l.a.mac[:], got[0][:6])
	}
	for range 20 {
		l.answers(l.a, l.b, four(17))
	}
	n := l.b.counters()
	require.Equal(t, uint64(10), n.ICMPSent, "a burst of ten")
	require.Equal(t, uint64(19), n.Own[DropICMPLimited])
	l.now += second / 2
	for range 20 {
		l.answers(l.a, l.b, six(17, ""))
	}
	require.Equal(t, uint64(15), l.b.counters().ICMPSent, "ten a second")
	l.whole()
}

// No error about an error, a broadcast or multicast (of link or IP), or a source that is not one
// host. TestDropsByReason has what is dropped before that.
// req: 1122-3.2.2-1, 1122-2.4-1, 4443-2.4-1, 1122-3.2.2.2-1, 1122-3.2.2-2
func TestNoICMPErrors(t *testing.T) {
	l := newLab(t, sixes)
	udp := make([]byte, 20)
	all := inet.AllNodes.GroupMAC()
	redirect := make([]byte, 36)
	redirect[0], redirect[1] = 5, 1
	binary.BigEndian.PutUint16(redirect[2:], inet.Checksum(redirect, 0))
	addr := netip.MustParseAddr
	for name, f := range map[string][]byte{
		"link broadcast":     packet(l.a.mac, inet.Broadcast, l.a.addr, l.b.addr, 17, udp),
		"limited broadcast":  packet(l.a.mac, l.b.mac, l.a.addr, addr("255.255.255.255"), 17, udp),
		"a Redirect":         packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoICMP, redirect),
		"link multicast 6":   packet6(l.a.mac, all, addr6(0), addr6(1), 17, 64, udp),
		"multicast 6":        packet6(l.a.mac, all, addr6(0), addr("ff02::1"), 17, 64, udp),
		"unknown, multicast": packet6(l.a.mac, all, addr6(0), addr("ff02::1"), 99, 64, udp),
		"unicast option": packet6(l.a.mac, all, addr6(0), addr("ff02::1"), 60, 64,
			unhex(t, "06 00 de 04 00000000")),
		"from ::": packet6(l.a.mac, l.b.mac, addr("::"), addr6(1), 17, 64, udp),
		"unknown informational": icmp6(l.a.mac, l.b.mac, addr6(0), addr6(1), 64,
			unhex(t, "c8 00 0000 00000000")),
		"no next header": packet6(l.a.mac, l.b.mac, addr6(0), addr6(1), 59, 64, nil),
		"echo to all": icmp6(l.a.mac, all, addr6(0), addr("ff02::1"), 64,
			unhex(t, "80 00 0000 00010001")),
		"another solicited-node": icmp6(l.a.mac, inet.MAC{0x33, 0x33, 0xff, 1, 2, 3}, addr6(0),
			addr("ff02::1:ff01:203"), 255,
			unhex(t, "87 00 0000 00000000 fd0000000000000000000000 00010203 01 01 020000000001")),
	} {
		require.Empty(t, l.answers(l.a, l.b, f), name)
	}
	// The two exceptions of RFC 4443 section 2.4(e.3): an option that says so is reported even so.
	got := l.answers(l.a, l.b, packet6(l.a.mac, all, addr6(0), addr("ff02::1"), 60, 64,
		unhex(t, "06 00 9e 04 00000000")))
	require.Len(t, got, 1)
	_, ip6, m := split6(t, got[0])
	require.Equal(t, inet.AddrFrom(addr6(1)), ip6.Src)
	require.Equal(t, []byte{4, 2}, m[:2])
	l.whole()
}
