package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// addr6 is the IPv6 address of host i in labs with sixes.
func addr6(i int) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)}) }

// sixes gives hosts a and b the addresses fd00::1/64 and fd00::2/64 besides IPv4's.
func sixes(i int, cfg *Config) { cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(i), 64)} }

// open6 gives an established connection over IPv6.
func (l *lab) open6() (u, v *peer) {
	l.t.Helper()
	l.listen(l.b, 7, 16)
	u = l.dialAt(l.a, netip.AddrPortFrom(addr6(1), 7))
	l.until("established", func() bool { return u.opened && len(l.accepted) == 1 })
	return u, l.accepted[0]
}

// opened6 is opened over IPv6.
func (l *lab) opened6() (self *lab, u, v *peer) {
	l.t.Helper()
	u, v = l.open6()
	return l, u, v
}

// packet6 builds Ethernet and IPv6 around octets.
func packet6(src, dst inet.MAC, from, to netip.Addr, next, hopLimit uint8, octets []byte) []byte {
	f := make([]byte, inet.EthernetLen+inet.IPv6Len+len(octets))
	eth := inet.Ethernet{Dst: dst, Src: src, Type: inet.EtherTypeIPv6}
	eth.Put(f)
	ip := inet.IPv6{PayloadLen: len(octets), NextHeader: next, HopLimit: hopLimit,
		Src: inet.AddrFrom(from), Dst: inet.AddrFrom(to)}
	ip.Put(f[inet.EthernetLen:])
	copy(f[inet.EthernetLen+inet.IPv6Len:], octets)
	return f
}

// icmp6 makes the checksum of an ICMPv6 message fit and builds its frame.
func icmp6(src, dst inet.MAC, from, to netip.Addr, hopLimit uint8, message []byte) []byte {
	m := bytes.Clone(message)
	m[2], m[3] = 0, 0
	binary.BigEndian.PutUint16(m[2:],
		inet.Checksum(m, inet.PseudoSum(inet.AddrFrom(from), inet.AddrFrom(to),
			inet.ProtoICMPv6, len(m))))
	return packet6(src, dst, from, to, inet.ProtoICMPv6, hopLimit, m)
}

// split6 takes an IPv6 frame apart.
func split6(t *testing.T, f []byte) (eth inet.Ethernet, ip inet.IPv6, payload []byte) {
	t.Helper()
	eth, b, d := inet.ParseEthernet(f)
	require.Equal(t, inet.DropNone, d)
	require.Equal(t, uint16(inet.EtherTypeIPv6), eth.Type)
	ip, payload, d = inet.ParseIPv6(b)
	require.Equal(t, inet.DropNone, d)
	return eth, ip, payload
}

func isIPv6(f []byte, next uint8) bool { return f[12] == 0x86 && f[13] == 0xdd && f[20] == next }

// Who dials may say from where; else the way decides, as iphost's TestSource has it.
// req: 9293-MUST-43, 9293-MUST-44
func TestLocalAddressOfADial(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		cfg.Gateway = netip.MustParseAddr("10.0.0.9")
		cfg.Addrs = append(cfg.Addrs, netip.MustParsePrefix("10.5.0.7/16"))
		cfg.Routes = []inet.Route{{Prefix: netip.MustParsePrefix("192.168.0.0/16"),
			Gateway: netip.MustParseAddr("10.5.0.9")}}
	})
	for _, c := range []struct {
		local, remote, from string
		err                 error
	}{
		{"", "8.8.8.8", "10.0.0.1", nil}, {"", "192.168.1.1", "10.5.0.7", nil},
		{"10.5.0.7", "10.0.0.2", "10.5.0.7", nil}, {"10.0.0.1", "192.168.1.1", "10.0.0.1", nil},
		{"", "fe80::99", "fe80::ff:fe00:1", nil}, {"fd00::1", "fe80::99", "fd00::1", nil},
		{"10.0.0.2", "10.0.0.3", "", ErrNotLocal}, {"fd00::1", "10.0.0.2", "", ErrNotLocal},
		{"10.0.0.1", "fd00::2", "", ErrNotLocal},
		{"", "10.5.0.7", "", ErrNoRoute}, {"", "ff02::1", "", ErrNetUnreachable},
	} {
		from, _ := netip.ParseAddr(c.local)
		got, err := l.a.DialFrom(netip.AddrPortFrom(from, 0),
			netip.AddrPortFrom(netip.MustParseAddr(c.remote), 7), newPeer(t, 1))
		require.ErrorIs(t, err, c.err, "%v", c)
		if err == nil {
			require.Equal(t, c.from, got.Local().Addr().String(), "%v", c)
		}
	}
}

// tagged puts an 802.1Q tag into a frame.
func tagged(f []byte, tci uint16) []byte {
	g := append(append([]byte(nil), f[:12]...), 0x81, 0, byte(tci>>8), byte(tci))
	return append(g, f[12:]...)
}

// Where the port puts the tag in and takes it off, the stack sees none.
func TestVLANOfThePort(t *testing.T) {
	l := newLab(t, func(_ int, cfg *Config) { cfg.VLAN, cfg.Caps.VLAN = 10, 10 })
	for _, h := range l.hosts {
		h.nic.lose = func(f []byte) bool {
			require.False(t, f[12] == 0x81 && f[13] == 0, "a tag")
			return false
		}
	}
	l.listen(l.b, 7, 16)
	u := l.dial(l.a, l.b, 7, 1000)
	l.until("acknowledged", func() bool { return u.acked == 1000 })
	cfg := l.a.cfg
	cfg.VLAN, cfg.Caps.VLAN = 9, 10
	require.ErrorContains(t, errOf(New(cfg)), "VLAN 9, but the port's is 10")
}

// Our VLAN's frames are taken, and without one, untagged and priority-tagged ones; others are
// counted. What we send has our tag.
func TestVLANTags(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.VLAN = uint16(10 * i) }) // a untagged, b on VLAN 10
	for _, c := range []struct {
		to    *host
		frame func(f []byte) []byte
		reply int // octets of tag; -1: none
	}{
		{l.b, func(f []byte) []byte { return tagged(f, 10) }, 4},
		{l.b, func(f []byte) []byte { return tagged(f, 7<<13|10) }, 4},
		{l.b, func(f []byte) []byte { return tagged(f, 5<<13) }, -1},
		{l.b, func(f []byte) []byte { return tagged(f, 11) }, -1},
		{l.b, func(f []byte) []byte { return f }, -1},
		{l.a, func(f []byte) []byte { return f }, 0},
		{l.a, func(f []byte) []byte { return tagged(f, 3<<13) }, 0},
		{l.a, func(f []byte) []byte { return tagged(f, 10) }, -1},
	} {
		from := l.a
		if c.to == l.a {
			from = l.b
		}
		drops := c.to.counters().Inet[inet.DropVLAN]
		m := make([]byte, 40)
		m[0] = inet.ICMPEcho
		binary.BigEndian.PutUint16(m[2:], inet.Checksum(m, 0))
		for _, f := range [][]byte{
			packet(from.mac, c.to.mac, from.addr, c.to.addr, inet.ProtoICMP, m),
			between(from, c.to, stranger(tcp.ACK, 2000), nil),
			unhex(t, fmt.Sprintf("ffffffffffff 020000000009 0806 0001 0800 06 04 0001 020000000009 "+
				"0a000009 000000000000 %x", c.to.addr.As4())),
		} {
			got := l.answers(from, c.to, c.frame(f))
			if c.reply < 0 {
				require.Empty(t, got)
				continue
			}
			require.Len(t, got, 1)
			if c.reply > 0 {
				require.Equal(t, []byte{0x81, 0, 0, 10}, got[0][12:16])
				got[0] = append(got[0][:12:12], got[0][16:]...)
			}
			require.Equal(t, f[12:14], got[0][12:14])
			require.Equal(t, f[6:12], got[0][:6])
		}
		if c.reply < 0 {
			require.Equal(t, drops+3, c.to.counters().Inet[inet.DropVLAN])
		}
	}
	l.whole()
}

// Segments that come in fragments are taken: both families, out of order, a header cut in three; an
// atomic fragment stands alone.
// req: 1122-3.3.2-1, 8200-4.5-1, 8200-5-1, 791-3.2-1, C02-13.1.1-2, D01-11.2-2
func TestFragmentedSegments(t *testing.T) {
	l := newLab(t, sixes)
	l.listen(l.b, 2000, 4)
	for _, six := range []bool{false, true} {
		from, to, cut := l.a.addr, l.b.addr, fragments4
		if six {
			from, to, cut = addr6(0), addr6(1), fragments6
		}
		pieces := cut(segmentFrame(l.a.mac, l.b.mac, from, to, stranger(tcp.SYN, 2000), nil), 8)
		require.Len(t, pieces, 3)
		syns := 0
		l.b.nic.onSend = func(f []byte) {
			if f[12] == 8 && f[13] == 0 || isIPv6(f, inet.ProtoTCP) {
				syns++
			}
		}
		before := l.b.counters()
		l.a.nic.inject(pieces[2])
		if six { // atomic, under the same identification: taken alone
			head := make([]byte, inet.Fragment6Len)
			(&inet.Fragment6{NextHeader: inet.ProtoUDP, ID: 77}).Put(head)
			l.a.nic.inject(packet6(l.a.mac, l.b.mac, from, to, inet.ProtoFragment6, 64,
				append(head, make([]byte, 8)...)))
		}
		l.a.nic.inject(pieces[0])
		l.b.Turn()
		require.Equal(t, before.HalfOpened, l.b.counters().HalfOpened)
		l.a.nic.inject(pieces[1])
		l.turns()
		n := l.b.counters()
		require.Equal(t, before.HalfOpened+1, n.HalfOpened, "v6 %v", six)
		require.Equal(t, before.Reassembled+1, n.Reassembled)
		require.NotZero(t, syns)
		if six {
			require.Equal(t, uint64(1), n.ICMPSent, "the atomic one was UDP, which nobody wants")
		}
	}
}

// A datagram that stays in pieces is given up after a minute; its sender hears of it if fragment
// zero came.
// req: 1122-3.3.2-2, 8200-4.5-1, C02-13.1.1.1-2, D01-11.2.1-2
func TestReassemblyTimeExceeded(t *testing.T) {
	for _, zero := range []bool{true, false} {
		l := newLab(t, sixes)
		frag := func(off int) []byte {
			head := make([]byte, inet.Fragment6Len)
			(&inet.Fragment6{NextHeader: inet.ProtoTCP, Off: off, More: true, ID: 99}).Put(head)
			return packet6(l.a.mac, l.b.mac, addr6(0), addr6(1), inet.ProtoFragment6, 64,
				append(head, make([]byte, 80)...))
		}
		f := packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoTCP, make([]byte, 80))
		ip, _, _ := inet.ParseIPv4(f[14:], false)
		ip.MF, ip.FragOff = true, 160
		if zero {
			ip.FragOff = 0
		}
		ip.Put(f[14:])
		var got [][]byte
		l.b.nic.onSend = func(g []byte) {
			if !isARP(g) && !(isIPv6(g, inet.ProtoICMPv6) && g[54] >= 128) {
				got = append(got, bytes.Clone(g))
			}
		}
		l.a.nic.inject(f)
		l.a.nic.inject(frag(ip.FragOff))
		l.pass(59 * second)
		require.Empty(t, got)
		l.pass(2 * second)
		require.Equal(t, uint64(2), l.b.counters().Inet[inet.DropReassemblyTimeout])
		if !zero {
			require.Empty(t, got)
			l.stop()
			continue
		}
		require.Len(t, got, 2)
		for _, g := range got {
			if g[12] == 8 {
				require.Equal(t, []byte{inet.ICMPTimeExceeded, 1}, g[34:36])
				require.Equal(t, f[14:], g[42:])
			} else {
				require.Equal(t, []byte{inet.ICMP6TimeExceeded, 1}, g[54:56])
				require.Equal(t, frag(0)[14:], g[62:])
			}
		}
		l.stop()
	}
}

// gateways gives host a two default gateways, b (10.0.0.2) and 10.0.0.3, which is c, a third host.
func gateways(t *testing.T) (*lab, *host) {
	l := &lab{t: t, now: 1000 * second}
	link := must(wire.New(wire.Config{Ports: 3}))(t)
	far := netip.MustParsePrefix("192.168.0.1/32")
	for i := range 3 {
		l.hosts = append(l.hosts, l.host(link.Port(i), i, func(i int, cfg *Config) {
			if i == 0 {
				cfg.Gateway = netip.MustParseAddr("10.0.0.2")
				cfg.Routes = []inet.Route{{Prefix: netip.MustParsePrefix("0.0.0.0/0"),
					Gateway: netip.MustParseAddr("10.0.0.3")}}
				return
			}
			cfg.Addrs = []netip.Prefix{far} // both stand for the host after them
		}))
	}
	l.a, l.b = l.hosts[0], l.hosts[1]
	return l.ends(), l.hosts[2]
}

// A gateway falls silent: TCP advises, the neighbour table asks in vain, and traffic goes through
// the other.
// req: 1122-3.3.1.4-1, 1122-3.3.1-1
func TestDeadGateway(t *testing.T) {
	t.Run("of a connection", func(t *testing.T) {
		l, c := gateways(t)
		l.listen(l.b, 7, 4)
		u := l.dialTo("192.168.0.1:7")
		conn := u.conn
		l.until("established", func() bool { return u.opened })
		require.Equal(t, inet.AddrFrom(l.b.addr), conn.nextHop)
		l.b.nic.lose = every
		u.send(1000)
		l.a.Turn()
		l.a.neighbours.Suspect(l.now, conn.nextHop)
		sent := 0
		c.nic.onSend = func(f []byte) {
			if s, _, ok := segmentOf(f); ok && s.Flags&tcp.RST != 0 {
				sent++
			}
		}
		// its host does not know the connection
		l.until("the other gateway was used", func() bool { return sent > 0 })
		require.Equal(t, inet.AddrFrom(c.addr), conn.nextHop)
		require.Equal(t, uint64(1), l.a.counters().Rerouted)
	})
	t.Run("of a dial", func(t *testing.T) {
		l, c := gateways(t)
		l.listen(c, 7, 4)
		l.b.nic.lose = every
		u := l.dialTo("192.168.0.1:7")
		l.until("established by the other", func() bool { return u.opened })
		require.Equal(t, uint64(0), uint64(u.closed))
	})
	t.Run("both", func(t *testing.T) {
		l, c := gateways(t)
		l.b.nic.lose = every
		c.nic.lose = l.b.nic.lose
		u := l.dialTo("192.168.0.1:7")
		l.until("given up", func() bool { return u.closed == 1 })
		require.ErrorIs(t, u.err, ErrNoRoute)
	})
}
