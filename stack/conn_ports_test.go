package stack

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// ipv46 gives both hosts an IPv6 address and a second IPv4 one.
func ipv46(i int, cfg *Config) {
	cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(i), 64),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 101)}), 24)}
}

// Passive opens of one port share it where no address is common to them: each takes its own.
func TestListenAtAddresses(t *testing.T) {
	var (
		all, all4, all6 = netip.Addr{}, netip.IPv4Unspecified(), netip.IPv6Unspecified()
		one, two, six   = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.102"), addr6(1)
	)
	l := newLab(t, ipv46)
	accepted := map[netip.Addr]netip.Addr{} // by the address dialled: where the listener was
	at := func(a netip.Addr) error {
		return l.b.ListenAt(netip.AddrPortFrom(a, 7), false, 4, func(c *Conn) Upper {
			accepted[c.Local().Addr()] = a
			return newPeer(t, 2)
		})
	}
	dial := func(to netip.Addr) (came bool) {
		u := l.dialAt(l.a, netip.AddrPortFrom(to, 7))
		c := u.conn
		u.conn = c
		l.until("an answer", func() bool { return u.opened || u.closed > 0 })
		return u.opened
	}
	for _, x := range []struct {
		taken []netip.Addr // by listeners that stand together
		used  []netip.Addr // where no other can
		reach map[netip.Addr]netip.Addr
	}{
		{[]netip.Addr{all}, []netip.Addr{all, all4, all6, one, six},
			map[netip.Addr]netip.Addr{one: all, two: all, six: all}},
		{[]netip.Addr{all4}, []netip.Addr{all, all4, one},
			map[netip.Addr]netip.Addr{one: all4, two: all4, six: {}}},
		{[]netip.Addr{all6, all4}, []netip.Addr{all, two, six},
			map[netip.Addr]netip.Addr{one: all4, six: all6}},
		{[]netip.Addr{one, six}, []netip.Addr{all, all4, all6, one, six},
			map[netip.Addr]netip.Addr{one: one, two: {}, six: six}},
		{[]netip.Addr{one, two, six}, []netip.Addr{two},
			map[netip.Addr]netip.Addr{one: one, two: two, six: six}},
	} {
		for _, a := range x.taken {
			require.NoError(t, at(a), "%v of %v", a, x.taken)
		}
		for _, a := range x.used {
			require.ErrorIs(t, at(a), ErrPortUsed, "%v beside %v", a, x.taken)
			_, err := l.b.Hold(netip.AddrPortFrom(a, 7))
			require.ErrorIs(t, err, ErrPortUsed, "%v beside %v", a, x.taken)
		}
		for to, by := range x.reach {
			clear(accepted)
			require.Equal(t, x.taken[0] == all || by.IsValid(), dial(to), "%v of %v", to, x.taken)
			require.Equal(t, by, accepted[to])
		}
		for _, a := range x.taken {
			l.b.UnlistenAt(netip.AddrPortFrom(a, 7))
		}
		require.Empty(t, l.b.ports.listeners)
	}
	require.ErrorIs(t, at(netip.MustParseAddr("10.0.0.9")), ErrNotLocal)
}

// A port that is held is nobody else's: no dial chooses it, and none that names it may have it.
func TestHold(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.DialPorts = PortRange{4000, 4001} })
	l.listen(l.b, 7, 4)
	port := must(l.a.Hold(netip.AddrPort{}))(t)
	require.Contains(t, []uint16{4000, 4001}, port)
	other := 8001 - port
	local := netip.AddrPortFrom(l.a.addr, port)

	for range 2 { // the other one is left to both
		u := l.dial(l.a, l.b, 7)
		require.Equal(t, other, u.conn.Local().Port())
		u.conn.Abort()
		l.until("closed", func() bool { return u.closed == 1 })
	}
	_, err := l.a.DialFrom(local, addrPort(l.b, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrPortUsed)
	yes := func(*Conn) Upper { return newPeer(t, 2) }
	require.ErrorIs(t, l.a.ListenAt(local, false, 1, yes), ErrPortUsed)
	require.ErrorIs(t, l.a.Listen(port, 1, yes), ErrPortUsed)

	u := newPeer(t, 1)
	c := must(l.a.DialHeld(local, addrPort(l.b, 7), u))(t)
	require.Equal(t, local, c.Local())
	u.conn = c
	l.until("open", func() bool { return u.opened })
	require.NoError(t, l.a.ListenAt(local, true, 1, yes), "the holder may")
	_, err = l.a.Hold(local)
	require.ErrorIs(t, err, ErrPortUsed, "listened on")
	l.a.UnlistenAt(local)

	u.closeSend()
	u.conn.Send()
	l.until("the FIN arrived", func() bool { return l.accepted[len(l.accepted)-1].peerFin })
	l.accepted[len(l.accepted)-1].closeSend()
	l.until("in TIME-WAIT", func() bool { return u.closed == 1 })
	u = newPeer(t, 1)
	u.conn, err = l.a.DialHeld(local, addrPort(l.b, 7), u)
	require.NoError(t, err, "at once")
	l.until("open again", func() bool { return u.opened })

	again, err := l.a.Hold(netip.AddrPortFrom(netip.Addr{}, port))
	require.NoError(t, err, "a second holder shares it")
	require.Equal(t, port, again)
	l.a.Release(port)
	require.ErrorIs(t, l.a.Listen(port, 1, yes), ErrPortUsed, "the first still has it")
	_, err = l.a.Hold(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), 0))
	require.ErrorIs(t, err, ErrNotLocal)

	second := must(l.a.Hold(netip.AddrPort{}))(t)
	require.Equal(t, other, second)
	none, err := l.a.Hold(netip.AddrPort{})
	require.ErrorIs(t, err, ErrPortUsed, "none is left")
	require.Zero(t, none)
	require.ErrorIs(t, errOf(l.a.Dial(addrPort(l.b, 7), newPeer(t, 1))), ErrPortUsed)
	l.a.Release(second)
	l.a.Release(port)
	require.Empty(t, l.a.ports.held)
	require.NoError(t, l.a.Listen(port, 1, yes))
}
