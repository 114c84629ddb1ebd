package stack

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// mailbox keeps what comes to a port of UDP.
type mailbox struct {
	lost []Datagram
	got  []Datagram
	data [][]byte
}

func (m *mailbox) Unreachable(d *Datagram) { m.lost = append(m.lost, *d) }

func (m *mailbox) Datagram(d *Datagram) {
	m.got, m.data = append(m.got, *d), append(m.data, bytes.Clone(d.Octets))
}

// onTurn has host i do what is in *f, once, where an embedder sends.
func onTurn(i int, f *func()) func(int, *Config) {
	return func(host int, cfg *Config) {
		sixes(host, cfg)
		if host == i {
			cfg.OnTurn = func() int {
				if *f == nil {
					return 0
				}
				(*f)()
				*f = nil
				return 1
			}
		}
	}
}

// A datagram gets to the port of its destination, by either IP, with its parts joined; one of a
// wrong checksum does not. A port that nobody has is reported unreachable.
func TestUDP(t *testing.T) {
	var send func()
	l := newLab(t, onTurn(0, &send))
	var m mailbox
	require.NoError(t, l.b.ListenUDP(9, &m))
	require.ErrorIs(t, l.b.ListenUDP(9, &m), ErrPortUsed)
	for _, x := range [][2]netip.Addr{{l.a.addr, l.b.addr}, {addr6(0), addr6(1)}} {
		m = mailbox{}
		d := Datagram{Local: inet.AddrFrom(x[0]), Remote: inet.AddrFrom(x[1]), LocalPort: 7,
			RemotePort: 9, TOS: 0x20}
		send = func() {
			require.Equal(t, SentOut, l.a.SendUDP(&d, [][]byte{[]byte("some "), nil, []byte("parts")}))
		}
		l.until("a datagram", func() bool { return len(m.got) == 1 })
		require.Equal(t, "some parts", string(m.data[0]))
		m.got[0].Octets = nil
		require.Equal(t, Datagram{Local: d.Remote, Remote: d.Local, LocalPort: 9, RemotePort: 7,
			TOS: 0x20}, m.got[0])

		bad := l.b.n.Inet[inet.DropChecksum]
		l.a.nic.onSend = func(f []byte) { f[len(f)-1] ^= 1 }
		send = func() { require.Equal(t, SentOut, l.a.SendUDP(&d, [][]byte{[]byte("bad")})) }
		l.until("a wrong checksum", func() bool { return l.b.n.Inet[inet.DropChecksum] == bad+1 })
		l.a.nic.onSend = nil

		errors := l.b.host.Counters().ErrorsSent
		var from mailbox
		require.NoError(t, l.a.ListenUDP(7, &from))
		d.RemotePort = 10
		send = func() { require.Equal(t, SentOut, l.a.SendUDP(&d, nil)) }
		l.until("an ICMP error", func() bool { return l.b.host.Counters().ErrorsSent == errors+1 })
		require.Len(t, m.got, 1)
		l.until("it is known", func() bool { return len(from.lost) == 1 })
		d.TOS = 0
		require.Equal(t, d, from.lost[0])
		l.a.CloseUDP(7)
	}
	l.b.CloseUDP(9)
	require.NoError(t, l.b.ListenUDP(9, &m))
}

// What can never be sent is not, and what cannot be now may be later; no packet buffer is lost.
func TestUDPNotSent(t *testing.T) {
	var send func()
	l := newLab(t, onTurn(0, &send))
	ours, theirs := inet.AddrFrom(l.a.addr), inet.AddrFrom(l.b.addr)
	mtu := make([]byte, l.a.cfg.MTU-inet.IPv4Len-inet.UDPLen)
	send = func() {
		for _, x := range []struct {
			local, remote Addr
			part          []byte
			want          Sent
		}{
			{ours, theirs, mtu, SentOut}, {ours, theirs, append(mtu, 0), SentNever},
			{theirs, theirs, nil, SentNever}, {ours, ours, nil, SentNever},
			{ours, inet.AddrFrom(addr6(1)), nil, SentNever},
			{ours, inet.AddrFrom(netip.MustParseAddr("224.0.0.1")), mtu, SentOut},
			{ours, inet.AddrFrom(netip.MustParseAddr("224.0.0.1")), append(mtu, 0), SentNever},
			{theirs, inet.AddrFrom(netip.MustParseAddr("224.0.0.1")), nil, SentNever},
			{ours, inet.AddrFrom(netip.MustParseAddr("ff05::1")), nil, SentNever},
			{ours, inet.AddrFrom(netip.MustParseAddr("192.0.2.1")), nil, SentNever},
		} {
			d := Datagram{Local: x.local, Remote: x.remote, LocalPort: 7, RemotePort: 9}
			require.Equal(t, x.want, l.a.SendUDP(&d, [][]byte{x.part}))
		}
	}
	l.turns()
	l.a.nic.txMax = 0
	d := Datagram{Local: ours, Remote: theirs, LocalPort: 7, RemotePort: 9}
	sent := 0
	send = func() {
		for l.a.SendUDP(&d, nil) == SentOut {
			sent++
		}
		l.a.nic.txMax = -1
	}
	l.turns()
	require.Greater(t, sent, 0)
	send = func() { require.Equal(t, SentOut, l.a.SendUDP(&d, nil)) }
	l.turns()
	l.whole()
}

// Datagrams to a neighbour that has not answered yet wait: a few in the table, the others with
// their sender, which is told when they can leave. None is lost. Those to one that does not answer
// are dropped, at once for a while after it was given up.
func TestUDPUnresolved(t *testing.T) {
	var send func()
	l := newLab(t, onTurn(0, &send))
	var m mailbox
	require.NoError(t, l.b.ListenUDP(9, &m))
	d := Datagram{Local: inet.AddrFrom(l.a.addr), Remote: inet.AddrFrom(l.b.addr), LocalPort: 7,
		RemotePort: 9}
	const all = 100
	sent := 0
	sends := func() (s Sent) {
		send = func() {
			for s = SentOut; s == SentOut && sent < all; {
				if s = l.a.SendUDP(&d, [][]byte{{byte(sent)}}); s == SentOut {
					sent++
				}
			}
		}
		l.a.Turn()
		return s
	}
	before := l.a.Resolved()
	require.Equal(t, SentUnresolved, sends())
	require.Equal(t, SentUnresolved, sends())
	require.Equal(t, 16, sent)
	require.Equal(t, before, l.a.Resolved())
	l.until("an answer", func() bool { return l.a.Resolved() != before })
	require.Equal(t, SentOut, sends())
	l.until("all datagrams", func() bool { return len(m.got) == all })
	for i, octets := range m.data {
		require.Equal(t, []byte{byte(i)}, octets)
	}

	d.Remote = inet.AddrFrom4([4]byte{10, 0, 0, 77})
	sent, before = 0, l.a.Resolved()
	require.Equal(t, SentUnresolved, sends())
	l.until("10.0.0.77 is given up", func() bool { return l.a.Resolved() != before })
	require.EqualValues(t, 16, l.a.counters().Own[DropNeighbourLost])
	require.Equal(t, SentNever, sends())
	l.now += second
	require.Equal(t, SentUnresolved, sends(), "it is asked for again")
	require.Equal(t, 2*16, sent)
	l.until("given up again", func() bool { return l.a.counters().Own[DropNeighbourLost] == 2*16 })
	l.whole()
}

// In a Group a port is one member's, whichever frames come to: the others hand its datagrams over,
// but no more than leave room for segments.
func TestUDPInGroup(t *testing.T) {
	l := groupLab(t, 3)
	var m mailbox
	require.NoError(t, l.hosts[2].ListenUDP(9, &m))
	require.ErrorIs(t, l.hosts[1].ListenUDP(9, &m), ErrPortUsed)
	d := Datagram{Local: inet.AddrFrom(l.a.addr), Remote: inet.AddrFrom(l.b.addr), LocalPort: 7,
		RemotePort: 9}
	const all = 60
	sent := 0
	l.until("all datagrams", func() bool {
		if sent < all && l.a.SendUDP(&d, [][]byte{{byte(sent)}}) == SentOut {
			sent++
		}
		return len(m.got) == all
	})
	seen := map[byte]bool{}
	for i, octets := range m.data {
		require.False(t, seen[octets[0]])
		seen[octets[0]] = true
		require.EqualValues(t, 9, m.got[i].LocalPort)
	}
	require.NotZero(t, l.hosts[1].counters().Crossed+l.hosts[3].counters().Crossed)

	ring := l.hosts[2].member.inbox()[0].ring
	for range 4 * crossingSlots {
		require.Equal(t, SentOut, l.a.SendUDP(&d, nil))
		l.a.Turn()
		l.hosts[1].Turn()
		l.hosts[3].Turn()
	}
	require.Equal(t, crossingDatagrams, ring.Len())
	require.NotZero(t, l.hosts[1].counters().Own[DropCrossing])

	l.hosts[2].CloseUDP(9)
	require.NoError(t, l.hosts[1].ListenUDP(9, &m))
	l.turns()
}

// The kernel at the other end of a TAP: datagrams both ways, of either IP, some in fragments.
func TestKernelUDP(t *testing.T) {
	k := tunedKernelLab(t, dual(t))
	got := make(chan Datagram, 1)
	k.do(func() { require.NoError(t, k.ListenUDP(9, &echo{k.Poller, got})) })
	for _, to := range []netip.Addr{ourAddr.Addr(), ourAddr6.Addr()} {
		c := must(net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9))))(t)
		for _, n := range []int{0, 1, 1400, 4000} {
			message := bytes.Repeat([]byte("x"), n)
			must(c.Write(message))(t)
			d := <-got
			require.Equal(t, message, d.Octets)
			if n > 1400 {
				continue // it would not leave in one
			}
			b := make([]byte, 4096)
			n := must(c.Read(b))(t)
			require.Equal(t, message, b[:n])
		}
		require.NoError(t, c.Close())
	}
}

// echo answers what comes with the same.
type echo struct {
	p   *Poller
	got chan Datagram
}

func (*echo) Unreachable(*Datagram) {}

func (e *echo) Datagram(d *Datagram) {
	e.p.SendUDP(d, [][]byte{d.Octets})
	c := *d
	c.Octets = append([]byte{}, d.Octets...)
	e.got <- c
}
