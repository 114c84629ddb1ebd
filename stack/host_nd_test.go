package stack

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// nsFrame is a solicitation for target by host a, from an address, to its solicited-node group.
func nsFrame(t *testing.T, l *lab, from, target netip.Addr, hopLimit uint8) []byte {
	to := inet.AddrFrom(target).SolicitedNode()
	text := fmt.Sprintf("87 00 0000 00000000 %x", target.As16())
	if !from.IsUnspecified() {
		text += fmt.Sprintf("01 01 %x", [6]byte(l.a.mac))
	}
	return icmp6(l.a.mac, to.GroupMAC(), from, to.Netip(), hopLimit, unhex(t, text))
}

// The first packet waits and leaves after the answer; the question goes to the solicited-node
// group.
// req: 4861-7.2-1, 4861-7.2-2
func TestFirstPacketWaitsForTheNeighbour(t *testing.T) {
	l := newLab(t, sixes)
	var sent [][]byte
	l.a.nic.onSend = func(f []byte) { sent = append(sent, bytes.Clone(f)) }
	l.dialAt(l.a, netip.AddrPortFrom(addr6(1), 7))
	l.a.Turn()
	require.Len(t, sent, 1)
	eth, ip, m := split6(t, sent[0])
	require.Equal(t, inet.MAC{0x33, 0x33, 0xff, 0, 0, 2}, eth.Dst)
	require.Equal(t, "ff02::1:ff00:2", ip.Dst.String())
	require.Equal(t, unhex(t, fmt.Sprintf("00000000 %x 0101 %x", addr6(1).As16(), [6]byte(l.a.mac))),
		m[4:])
	l.turns()
	require.Equal(t, uint8(inet.ProtoTCP), sent[1][20], "the SYN, at once")

	// Nobody there: three questions a second apart, then the dial ends.
	sent = nil
	begin := l.now
	u := l.dialAt(l.a, netip.AddrPortFrom(addr6(9), 7))
	l.until("given up", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrNoRoute)
	require.Len(t, sent, 3)
	require.Equal(t, 3*second, l.now-begin)
}

// TCP's progress keeps the neighbour confirmed: no question in ten minutes; without it there are.
// req: 4861-7.3-1
func TestProgressConfirmsTheNeighbour(t *testing.T) {
	l, u, v := newLab(t, sixes).opened6()
	before := l.a.counters().NDRequests
	for i := range uint64(60) {
		u.send(1000)
		l.until("there", func() bool { return v.edge == 1000*(i+1) })
		l.pass(10 * second)
	}
	require.Equal(t, before, l.a.counters().NDRequests)
	require.NotZero(t, l.b.counters().NDRequests, "b only acknowledged: nothing told it that a hears")

	l.b.nic.lose = func(f []byte) bool { return isIPv6(f, inet.ProtoTCP) }
	l.pass(60 * second)
	u.send(1000)
	l.pass(20 * second)
	require.NotEqual(t, before, l.a.counters().NDRequests)
	l.b.nic.lose = nil
	l.until("there in the end", func() bool { return v.edge == 61_000 })
}

// raFrame is a router's advertisement: lifetime s, hop limit 49, MTU 1400, fd55::/64 on the link.
func raFrame(t *testing.T, router inet.MAC, lifetime uint16) []byte {
	m := unhex(t, fmt.Sprintf(`86 00 0000 31 00 %04x 00000000 00000000 01 01 %x 05 01 0000 00000578
		03 04 40 80 00000064 00000064 00000000 fd550000000000000000000000000000`, lifetime, [6]byte(router)))
	return icmp6(router, inet.AllNodes.GroupMAC(), inet.LinkLocal(router).Netip(),
		inet.AllNodes.Netip(), 255, m)
}

// What a router says of itself and the link is applied to a connection, until it says otherwise.
// req: 4861-6.3-1
func TestRouterDiscovery(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		cfg.Discover = i == 1
	})

	far := netip.MustParseAddrPort("[2001:db8::1]:7")
	_, err := l.b.Dial(far, newPeer(t, 1))
	require.ErrorIs(t, err, ErrNetUnreachable)
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	var syn []byte
	l.b.nic.onSend = func(f []byte) { syn = bytes.Clone(f) }
	l.a.nic.inject(raFrame(t, router, 1800))
	l.turns()
	c := l.dialAt(l.b, far).conn
	l.b.Turn()
	require.Equal(t, router[:], syn[:6], "to the router, whose MAC it told")
	_, ip, m := split6(t, syn)
	require.Equal(t, uint8(49), ip.HopLimit)
	var s tcp.Segment
	require.Equal(t, tcp.DropNone, tcp.Parse(m, &s))
	require.Equal(t, uint16(1400-60), s.Options.MSS)
	c.Abort()
	l.a.nic.inject(raFrame(t, router, 0))
	l.turns()
	_, err = l.b.Dial(far, newPeer(t, 1))
	require.ErrorIs(t, err, ErrNetUnreachable, "it is no default router any more")
	require.Equal(t, uint64(2), l.b.counters().RouterAdverts)
}

// FuzzIPv6Frames is FuzzFrames for IPv6: with fix, addresses and checksums are made right.
func FuzzIPv6Frames(f *testing.F) {
	f.Add([]byte{inet.ProtoTCP, 0, 7, 0, 8}, true)
	f.Add([]byte{inet.ProtoUDP, 0, 7, 0, 8}, true)
	f.Add([]byte{inet.ProtoFragment6, 6, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, true)
	f.Add(append([]byte{inet.ProtoICMPv6}, raFrameBody()...), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if len(b) < 1 || len(b) > 1400 {
			return
		}
		l := newLab(t, discovering)
		l.listen(l.b, 2000, 4)
		from, body := addr6(0), append([]byte(nil), b[1:]...)
		if len(body) > 0 && body[0] == inet.NDRouterAdvertisement {
			from = inet.LinkLocal(l.a.mac).Netip()
		}
		frame := packet6(l.a.mac, l.b.mac, from, addr6(1), b[0], 255, body)
		if fix && b[0] == inet.ProtoICMPv6 && len(body) >= 4 {
			frame = icmp6(l.a.mac, l.b.mac, from, addr6(1), 255, body)
		}
		for range 2 {
			l.answers(l.a, l.b, frame)
			l.pass(50 * ms)
		}
		l.pass(70 * second)
		l.stop()
		require.Equal(t, mem.NoBuf, l.b.tx.spare)
	})
}

func raFrameBody() []byte {
	return []byte{inet.NDRouterAdvertisement, 0, 0, 0, 17, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}
}
