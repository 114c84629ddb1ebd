package stack

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

var (
	group4 = netip.MustParseAddr("239.77.3.1")
	group6 = netip.MustParseAddr("ff05::77:1")
)

// A datagram to a group gets to the port of those that have joined it, by either IP, with a TTL of
// 1; after they have left it, it does not. What nobody wants draws no error.
func TestUDPToGroup(t *testing.T) {
	var send func()
	l := newLab(t, onTurn(0, &send))
	var m mailbox
	require.NoError(t, l.b.ListenUDP(9, &m))
	for _, x := range [][2]netip.Addr{{l.a.addr, group4}, {addr6(0), group6}} {
		m = mailbox{}
		group := inet.AddrFrom(x[1])
		d := Datagram{Local: inet.AddrFrom(x[0]), Remote: group, LocalPort: 7, RemotePort: 9}
		ttl := []byte{}
		l.a.nic.onSend = func(f []byte) {
			require.Equal(t, group.GroupMAC(), inet.MAC(f))
			ttl = append(ttl, f[14+map[bool]int{true: 8, false: 7}[x[1].Is4()]])
		}
		try := func(want int) {
			t.Helper()
			dropped := l.b.n.Inet[inet.DropNotOurs]
			send = func() { require.Equal(t, SentOut, l.a.SendUDP(&d, [][]byte{[]byte("to all")})) }
			l.until("a datagram", func() bool {
				return len(m.got) == want || l.b.n.Inet[inet.DropNotOurs] > dropped
			})
			require.Len(t, m.got, want)
		}
		try(0)
		require.NoError(t, l.b.JoinGroup(group))
		require.Error(t, l.b.JoinGroup(group))
		try(1)
		require.Equal(t, group, m.got[0].Local)
		require.Equal(t, "to all", string(m.data[0]))
		d.RemotePort = 10
		try(1)
		d.RemotePort = 9
		l.b.LeaveGroup(group)
		l.b.LeaveGroup(group)
		try(1)
		require.Equal(t, []byte{1, 1, 1, 1}, ttl)
		l.a.nic.onSend = nil
		l.pass(20 * second)
	}
	require.Zero(t, l.b.host.Counters().ErrorsSent)
	require.Error(t, l.b.JoinGroup(inet.AddrFrom(l.b.addr)))
	for i := range 64 {
		require.NoError(t, l.b.JoinGroup(inet.AddrFrom4([4]byte{239, 0, 0, byte(i)})))
	}
	require.Error(t, l.b.JoinGroup(inet.AddrFrom(group4)))
	l.b.Stop()
	l.turns()
	require.ErrorIs(t, l.b.JoinGroup(inet.AddrFrom(group4)), ErrStopped)
}

// Without an address of its family a group is not joined.
func TestGroupWithoutAddress(t *testing.T) {
	l := newLab(t, nil)
	require.ErrorIs(t, l.b.JoinGroup(inet.AddrFrom(group6)), ErrNotLocal)
	require.NoError(t, l.b.JoinGroup(inet.AddrFrom(group4)))
}

// What cannot be a datagram to a group is none: in fragments, by another MAC, from an address of
// ours or of nobody, cut, or with a wrong checksum.
func TestStrangeDatagramsToGroup(t *testing.T) {
	l := newLab(t, sixes)
	var m mailbox
	require.NoError(t, l.b.ListenUDP(9, &m))
	require.NoError(t, l.b.JoinGroup(inet.AddrFrom(group4)))
	frame := func(from netip.Addr, change func(f []byte)) {
		src, dst := inet.AddrFrom(from), inet.AddrFrom(group4)
		b := make([]byte, inet.UDPLen+4)
		h := inet.UDP{SrcPort: 7, DstPort: 9, Length: len(b)}
		h.Put(b, &src, &dst)
		f := packet(mallory, dst.GroupMAC(), from, group4, inet.ProtoUDP, b)
		if change != nil {
			change(f)
			ip := f[inet.EthernetLen:][:inet.IPv4Len]
			ip[10], ip[11] = 0, 0
			binary.BigEndian.PutUint16(ip[10:], inet.Checksum(ip, 0))
		}
		l.a.nic.inject(f)
		l.turns()
	}
	frame(l.a.addr, nil)
	require.Len(t, m.got, 1)
	for _, change := range []func(f []byte){
		func(f []byte) { f[14+6] = 0x20 }, // more fragments
		func(f []byte) { f[5] ^= 1 },
		func(f []byte) { copy(f, inet.Broadcast[:]) },
		func(f []byte) { f[len(f)-1] ^= 1 },
		func(f []byte) { f[14+9] = inet.ProtoTCP },
		func(f []byte) { f[14+9] = inet.ProtoICMP },
		func(f []byte) { f[14+3] = inet.IPv4Len + 7 },
		func(f []byte) { f[14+20+5] = 99 },
	} {
		frame(l.a.addr, change)
	}
	for _, from := range []string{"10.0.0.2", "0.0.0.0", "239.77.3.1", "10.0.0.255", "127.0.0.1"} {
		frame(netip.MustParseAddr(from), nil)
	}
	require.Len(t, m.got, 1)
	require.Zero(t, l.b.host.Counters().ErrorsSent)
}

// In a Group a datagram to a group gets to the member that has the port, whichever frames come to;
// the first one reports and joins.
func TestUDPToGroupInGroup(t *testing.T) {
	l := groupLab(t, 3)
	var m mailbox
	require.NoError(t, l.hosts[1].ListenUDP(9, &m))
	group := inet.AddrFrom(group4)
	require.Error(t, l.hosts[2].JoinGroup(group))
	require.NoError(t, l.hosts[1].JoinGroup(group))
	d := Datagram{Local: inet.AddrFrom(l.a.addr), Remote: group, LocalPort: 7, RemotePort: 9}
	const all = 60
	sent := 0
	l.until("all datagrams", func() bool {
		if sent < all && l.a.SendUDP(&d, [][]byte{{byte(sent)}}) == SentOut {
			sent++
		}
		return len(m.got) == all
	})
	require.NotZero(t, l.hosts[2].counters().Crossed+l.hosts[3].counters().Crossed)
}

// A bridge that snoops and is the querier of IGMP passes a group to us once we have joined it,
// until we leave it, or end; its Query finds us; and what a kernel sends there arrives, and what we
// send.
func TestKernelGroup(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("IGMPv"+version, func(t *testing.T) {
			b := newBridged(t)
			p, stop := b.start("stack0", inet.MAC{2, 0, 0, 0, 7, 1}, "before", nil)
			require.NoError(t, b.await(p))
			asked := counted(t, p).Listener.Queries
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "1",
				"mcast_igmp_version", version, "mcast_query_response_interval", "20")
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_querier", "1")
			b.until("the querier's version is known", func() bool {
				return counted(t, p).Listener.Queries > asked
			})
			got := make(chan Datagram, 1)
			do := func(f func()) {
				done := make(chan struct{})
				require.NoError(t, p.Submit(func() { f(); close(done) }))
				<-done
			}
			knows := func() bool { return slices.Contains(b.groups("stack0"), group4.String()) }
			require.False(t, knows())
			do(func() {
				require.NoError(t, p.ListenUDP(9, &echo{p, got}))
				require.NoError(t, p.JoinGroup(inet.AddrFrom(group4)))
			})
			b.until("the bridge knows our group", knows)
			var c *net.UDPConn
			b.client.Do(func() {
				var err error
				c, err = net.DialUDP("udp4", &net.UDPAddr{IP: kernelAddr.Addr().AsSlice()},
					&net.UDPAddr{IP: group4.AsSlice(), Port: 9})
				require.NoError(t, err)
			})
			defer c.Close()
			must(c.Write([]byte("to a group")))(t)
			require.Equal(t, "to a group", string((<-got).Octets))

			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "0") // forgets
			require.False(t, knows())
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_querier", "0")
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "1")
			b.bridge.Run(t, "ip", "link", "set", "br0", "type", "bridge", "mcast_querier", "1")
			b.until("asked and answered", knows)
			require.Equal(t, version == "2", counted(t, p).Listener.Older)

			do(func() { p.LeaveGroup(inet.AddrFrom(group4)) })
			b.until("left", func() bool { return !knows() })
			do(func() { require.NoError(t, p.JoinGroup(inet.AddrFrom(group4))) })
			b.until("joined again", knows)

			listener := listens(t, b, group4)
			defer listener.Close()
			b.until("the bridge knows the client's group", func() bool {
				return slices.Contains(b.groups("client"), group4.String())
			})
			do(func() {
				d := Datagram{Local: inet.AddrFrom(ourAddr.Addr()), Remote: inet.AddrFrom(group4),
					LocalPort: 9, RemotePort: 10}
				require.Equal(t, SentOut, p.SendUDP(&d, [][]byte{[]byte("from us")}))
			})
			octets := make([]byte, 100)
			n, from, err := listener.ReadFromUDPAddrPort(octets)
			require.NoError(t, err)
			require.Equal(t, "from us", string(octets[:n]))
			require.Equal(t, ourAddr.Addr(), from.Addr().Unmap())

			stop()
			b.until("left at the end", func() bool {
				return !strings.Contains(b.bridge.Run(t, "bridge", "mdb", "show", "dev", "br0"),
					"port stack0 grp "+group4.String())
			})
		})
	}
}

// listens is a socket of the client's that has joined a group.
func listens(t *testing.T, b *bridged, group netip.Addr) (c *net.UDPConn) {
	t.Helper()
	b.client.Do(func() {
		device := must(net.InterfaceByName("wire0"))(t)
		c = must(net.ListenMulticastUDP("udp4", device,
			&net.UDPAddr{IP: group.AsSlice(), Port: 10}))(t)
	})
	return c
}
