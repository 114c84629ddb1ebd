package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// DialFrom takes the given port unless a listener has it, or a connection to the same remote end.
//
// req: 9293-MUST-43, 9293-MUST-41
func TestLocalPortOfADial(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 16)
	l.listen(l.b, 8, 16)
	from := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, port) }
	u := newPeer(t, 1)
	c := must(l.a.DialFrom(from(4000), addrPort(l.b, 7), u))(t)
	l.until("open", func() bool { return u.opened && len(l.accepted) == 1 })
	require.Equal(t, addrPort(l.a, 4000), c.Local())
	require.Equal(t, c.Local(), l.accepted[0].conn.Remote())

	_, err := l.a.DialFrom(from(4000), addrPort(l.b, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrPortUsed)
	require.ErrorContains(t, err, "from port 4000")
	other := newPeer(t, 1)
	_, err = l.a.DialFrom(from(4000), addrPort(l.b, 8), other)
	require.NoError(t, err, "another remote end")
	require.NoError(t, l.a.Listen(4001, 1, func(*Conn) Upper { return nil }))
	_, err = l.a.DialFrom(from(4001), addrPort(l.b, 8), newPeer(t, 1))
	require.ErrorIs(t, err, ErrPortUsed, "listened on")

	// In TIME-WAIT it is taken, too, until the peer's clock has ticked for sure.
	l.finish(u, l.accepted[0])
	_, err = l.a.DialFrom(from(4000), addrPort(l.b, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrPortUsed)
	l.pass(2 * second)
	u = newPeer(t, 1)
	must(l.a.DialFrom(from(4000), addrPort(l.b, 7), u))(t)
	l.until("open again", func() bool { return u.opened })
}

// In a Group a 4-tuple has one owner, and only that one can dial.
func TestLocalPortBelongsToOneMember(t *testing.T) {
	const n, ports = 3, 60
	l := groupLab(t, n)
	l.listen(l.a, 7, 128)
	var owned [n]int
	for port := range uint16(ports) {
		owners := 0
		for i, h := range l.hosts[1:] {
			u := newPeer(t, 1)
			c, err := h.DialFrom(netip.AddrPortFrom(netip.Addr{}, 4000+port), addrPort(l.a, 7), u)
			if err != nil {
				require.ErrorIs(t, err, ErrOtherMember)
				continue
			}
			owners++
			owned[i]++
			l.until("open", func() bool { return u.opened })
			c.Abort()
			l.turns()
		}
		require.Equal(t, 1, owners, "port %d", 4000+port)
	}
	require.NotContains(t, owned, 0)
}

// What a router says tells networks from hosts, as Linux does, and a service that is not there from
// both. It is the reason of the end if the connection is given up, and does not end it.
//
// req: 9293-MUST-47, 9293-SHLD-25, 9293-MUST-22
func TestUnreachablesAreToldApart(t *testing.T) {
	for _, c := range []struct {
		code uint8
		want error
	}{
		{inet.ICMPNetUnreachable, ErrNetUnreachable}, {1, ErrNoRoute},
		{inet.ICMPNetUnknown, ErrNetUnreachable}, {7, ErrNoRoute},
		{inet.ICMPNetTOS, ErrNetUnreachable}, {12, ErrNoRoute}, {13, ErrNoRoute},
		{inet.ICMPPortUnreachable, ErrRefused},
	} {
		l := newLab(t, nil)
		u, _ := l.open()
		l.a.nic.lose = func(f []byte) bool {
			if s, _, ok := segmentOf(f); ok && s.Len > 0 {
				l.b.nic.inject(icmpErrorFrame(netip.MustParseAddr("10.0.0.254"), l.a, inet.ICMPUnreachable,
					c.code, 0, f))
				return true
			}
			return false
		}
		u.send(100)
		l.until("told", func() bool { return len(u.advice) > 0 })
		require.Equal(t, c.want, u.advice[0], "code %d", c.code)
		require.ErrorIs(t, u.conn.SoftError(), c.want)
		require.Zero(t, u.closed)
		l.until("given up", func() bool { return u.closed == 1 })
		require.Equal(t, c.want, u.err, "code %d", c.code)
		l.stop()
	}
	e := inet.ICMPError{Src: inet.AddrFrom(addr6(0)), Type: inet.ICMP6Unreachable,
		Code: inet.ICMP6NoRoute}
	require.Equal(t, ErrNetUnreachable, reasons[whatIs(&e)])
	e.Code = 3
	require.Equal(t, ErrNoRoute, reasons[whatIs(&e)], "address unreachable")
	e.Code = inet.ICMP6PortUnreachable
	require.Equal(t, ErrRefused, reasons[whatIs(&e)])
}

// An Upper hears that its FIN was acknowledged while the peer goes on; where the peer has closed as
// well, Closed says so.
func TestFinAcked(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.toSend = 100
	u.closeSend()
	u.conn.Send()
	l.until("acknowledged", func() bool { return u.finAcked > 0 })
	require.True(t, v.peerFin)
	require.Zero(t, u.closed)
	v.closeSend()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
	require.Equal(t, 1, u.finAcked)
	require.NoError(t, u.err)
	require.Zero(t, v.finAcked)
}

// req: 9293-MUST-46
func TestDialSaysWhatIsImpossible(t *testing.T) {
	l := newLab(t, nil)
	for remote, want := range map[string]error{
		"224.0.0.1:7": ErrNetUnreachable, "255.255.255.255:7": ErrNetUnreachable,
		"0.0.0.0:7": ErrNetUnreachable, "127.0.0.1:7": ErrNetUnreachable,
		"10.0.0.255:7": ErrNetUnreachable, "10.0.0.2:0": nil, "[2001:db8::1]:7": ErrNetUnreachable,
		"10.0.0.1:7": ErrNoRoute, "192.0.2.1:7": ErrNetUnreachable,
	} {
		_, err := l.a.Dial(netip.MustParseAddrPort(remote), newPeer(t, 1))
		require.Error(t, err, remote)
		if want != nil {
			require.ErrorIs(t, err, want, remote)
		}
	}
	require.Zero(t, l.a.counters().Opened)
}

// With DialPorts a Poller dials from those ports only, from each once to the same remote end.
func TestDialPorts(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax, cfg.DialPorts = 100, PortRange{1000, 1009}
	})
	seen := map[uint16]bool{}
	for range 10 {
		port := l.dial(l.a, l.b, 7).conn.Local().Port()
		require.True(t, port >= 1000 && port <= 1009 && !seen[port], "%d", port)
		seen[port] = true
	}
	_, err := l.a.Dial(netip.AddrPortFrom(l.b.addr, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrPortUsed)
	require.ErrorContains(t, err, "all 10 local ports")
}

func TestEphemeralPorts(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax = 100
		cfg.TCP.SentMax = 16
	})
	seen := map[uint16]bool{}
	for range 50 {
		u := l.dial(l.a, l.b, 7)
		port := u.conn.Local().Port()
		require.GreaterOrEqual(t, port, uint16(portFirst))
		require.False(t, seen[port])
		seen[port] = true
		// A listener takes the next port: Dial skips it.
		id := *u.conn.tcp.ID()
		next := portFirst +
			uint16(
				(uint32(l.a.secret.tuple(usePort, &tcp.ID{Local: id.Local, Remote: id.Remote, RemotePort: 7}))+
					l.a.ports.next)%(portLast-portFirst+1))
		require.NoError(t, l.a.Listen(next, 1, func(*Conn) Upper { return nil }))
		seen[next] = true
	}
}
