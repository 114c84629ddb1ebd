package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// An address that is added is checked, announced and used, one that is removed not: its connections
// end, others do not.
func TestAddrsChange(t *testing.T) {
	l := newLab(t, claiming)
	l.pass(20 * second)
	u, v := l.open()
	all := l.listenTo(l.b)
	for _, a := range []string{"10.0.0.7/24", "172.16.0.7/16", "fd00::7/64"} {
		require.NoError(t, l.b.AddAddr(netip.MustParsePrefix(a)))
	}
	require.Equal(t, 4, l.b.counters().AddrTentative, "a link-local one came with the first of IPv6")
	l.pass(20 * second)
	require.Zero(t, l.b.counters().AddrTentative)
	require.Equal(t, " probe probe probe announce announce", all["10.0.0.7"])
	require.Equal(t, " probe announce announce announce", all["fd00::7"])
	l.b.nic.onSend = nil

	w := l.dialTo("10.0.0.7:7")
	l.until("established", func() bool { return w.opened && len(l.accepted) == 2 })
	_, ok := l.b.host.Route(l.now, inet.AddrFrom(netip.MustParseAddr("172.16.9.9")))
	require.True(t, ok)
	for _, a := range []string{"10.0.0.7", "172.16.0.7"} {
		require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr(a)))
	}
	l.until("reset", func() bool { return w.closed == 1 && l.accepted[1].closed == 1 })
	require.ErrorIs(t, w.err, ErrReset)
	require.ErrorIs(t, l.accepted[1].err, ErrAddrRemoved)
	_, ok = l.b.host.Route(l.now, inet.AddrFrom(netip.MustParseAddr("172.16.9.9")))
	require.False(t, ok)
	_, ok = l.b.host.Route(l.now, inet.AddrFrom(netip.MustParseAddr("10.0.0.99")))
	require.True(t, ok, "the first address is of that network, too")
	u.send(1000)
	l.until("the network's other address stays", func() bool { return v.edge == 1000 })
	require.Empty(t, l.answers(l.a, l.b, arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr),
		inet.AddrFrom4([4]byte{10, 0, 0, 7})))))

	for range 2 * inet.RoutesMax { // each takes its route along
		require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.7/24")))
		require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr("10.0.0.7")))
	}
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.2/24")), "is ours already")
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("224.0.0.1/24")), "unicast")
	require.ErrorContains(t, l.b.RemoveAddr(netip.MustParseAddr("10.0.0.9")), "none of ours")
	require.ErrorContains(t, l.b.RemoveAddr(l.b.addr), "or the first")
	for i := range iphost.Max - len(l.b.addrs()) {
		require.NoError(
			t, l.b.AddAddr(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}), 16)))
	}
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("10.0.2.1/16")), "16 addresses")
	l.stop()
	require.ErrorIs(t, l.b.AddAddr(netip.MustParsePrefix("10.0.2.1/16")), ErrStopped)
}

// An address whose network finds no room among the routes is not added.
func TestAddrWithoutRoute(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		for k := range inet.RoutesMax - 2 {
			net := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(k), 0}), 24)
			cfg.Routes = append(cfg.Routes,
				inet.Route{Prefix: net, Gateway: netip.MustParseAddr("10.0.0.9")})
		}
	})
	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.7/24")))
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.8/24")), "64 routes")
	require.Len(t, l.b.addrs(), 2)

	// With room for one, an address of IPv6 that would bring another is not added, either.
	require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr("10.0.0.7")))
	for range 2 {
		require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("fd00::7/64")), "64 routes")
		require.Len(t, l.b.addrs(), 1)
	}
	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("fe80::7/64")))
}

// Half-open connections of an address that is given up, or removed, are reset and forgotten: no
// SYN,ACK comes from it any more. Those of another address stay.
// req: 5227-2.4-4
func TestHalfOpenOfAnAddressGivenUp(t *testing.T) {
	for _, removed := range []bool{false, true} {
		l := newLab(t, func(i int, cfg *Config) {
			claiming(i, cfg)
			if i == 1 {
				cfg.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24")}
			}
		})
		l.pass(20 * second)
		l.listen(l.b, 7, 16)
		first, added := l.b.addr, netip.MustParseAddr("10.0.0.7")
		open := func(a netip.Addr) tcp.Seq {
			l.b.addr = a
			defer func() { l.b.addr = first }()
			return newGhost(l, 1000).syn(allOptions).Seq
		}
		isn := map[netip.Addr]tcp.Seq{first: open(first), added: open(added)}
		gone, stays := first, added
		if removed {
			gone, stays = added, first
		}
		sent := map[netip.Addr][]tcp.Segment{}
		l.b.nic.onSend = func(f []byte) {
			if s, _, ok := segmentOf(f); ok {
				from := netip.AddrFrom4([4]byte(f[26:30]))
				sent[from] = append(sent[from], s)
			}
		}
		if removed {
			require.NoError(t, l.b.RemoveAddr(gone))
		} else {
			require.NoError(t, l.b.LinkUp())
			l.pass(10 * ms) // it is checked again, for two seconds at least
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
		}
		l.turns()
		require.Equal(t, 1, l.b.syns.n)
		require.Len(t, sent[gone], 1)
		rst := sent[gone][0]
		require.Equal(t, []any{tcp.RST | tcp.ACK, isn[gone] + 1}, []any{rst.Flags, rst.Seq})
		l.pass(300 * second)
		require.Len(t, sent[gone], 1)
		require.Greater(t, len(sent[stays]), 3)
		for _, s := range sent[stays] {
			require.Equal(t, []any{tcp.SYN | tcp.ACK, isn[stays]}, []any{s.Flags, s.Seq})
		}
		require.Zero(t, l.b.syns.n)
		l.b.nic.onSend = nil
		l.stop()
	}
}
