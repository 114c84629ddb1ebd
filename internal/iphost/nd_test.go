package iphost

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// Solicitations are answered by RFC 4861 section 7.2.4, and only those that are valid and for us.
// req: 4861-7.2-3, 4861-7.1-1, 4861-7.2-1
func TestSolicitationsAreAnswered(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
	asker := addr("fd00::9")
	answer := func(f []byte) (eth inet.Ethernet, ip inet.IPv6, m []byte) {
		s.forget()
		s.hear(f)
		require.LessOrEqual(t, len(s.frames), 1)
		if len(s.frames) == 1 {
			var b []byte
			eth, b, _ = inet.ParseEthernet(s.frames[0])
			ip, m, _ = inet.ParseIPv6(b)
		}
		return eth, ip, m
	}
	eth, ip, m := answer(question(t, rivalMAC, asker, ours6))
	require.Equal(t, inet.Ethernet{Dst: rivalMAC, Src: ourMAC, Type: inet.EtherTypeIPv6}, eth)
	require.Equal(t, []any{ours6, asker, uint8(255)}, []any{ip.Src, ip.Dst, ip.HopLimit})
	require.Equal(t, unhex(t, "60000000 fd000000000000000000000000000002 0201 020000000002"), m[4:])
	require.Equal(t, NeighbourLearned, s.told)
	mac, known, _, _ := s.neighbours.Lookup(s.now, asker, 1)
	require.True(t, known, "from the solicitation")
	require.Equal(t, rivalMAC, mac)

	eth, ip, m = answer(question(t, rivalMAC, inet.Addr{}, ours6))
	require.Equal(t, inet.AllNodes.GroupMAC(), eth.Dst)
	require.Equal(t, inet.AllNodes, ip.Dst)
	require.Equal(t, byte(0x20), m[4], "not solicited")
	require.Equal(t, Counters{NDReplies: 2}, *s.Counters())

	good := question(t, rivalMAC, asker, ours6)
	hops, sum := append([]byte(nil), good...), append([]byte(nil), good...)
	hops[21] = 64
	sum[60] ^= 1
	for name, f := range map[string][]byte{
		"hop limit": hops, "checksum": sum, "another's": question(t, rivalMAC, asker, addr("fd00::5")),
		"of our group, not our address": question(t, rivalMAC, asker, addr("fd00::5:0:2")),
	} {
		_, _, m := answer(f)
		require.Nil(t, m, name)
	}
	require.Equal(t, Counters{NDReplies: 2}, *s.Counters())
}

// advertise is a router's advertisement: lifetime s, hop limit 49, MTU 1400, fd55::/64 on the link.
func routerAdvert(t *testing.T, router inet.MAC, lifetime uint16) []byte {
	return icmp6(t, router, inet.LinkLocal(router), inet.AllNodes, 255,
		`86 00 0000 31 00 %04x 00000000 00000000 01 01 %x 05 01 0000 00000578
		03 04 40 80 00000064 00000064 00000000 fd550000000000000000000000000000`,
		lifetime, [6]byte(router))
}

// Three solicitations four seconds apart, after up to one second; what an advertisement says is
// applied, and ends.
// req: 4861-6.3-1
func TestRouterDiscovery(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg); cfg.Discover = true })
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	far, near := addr("2001:db8::1"), addr("fd55::1")
	s.pass(60 * second)
	var at []int64
	for _, w := range s.words {
		if w.what == "rs" {
			at = append(at, w.at)
			eth, b, _ := inet.ParseEthernet(w.frame)
			ip, _, _ := inet.ParseIPv6(b)
			require.Equal(t, []any{inet.LinkLocal(ourMAC), inet.AllRouters}, []any{ip.Src, ip.Dst})
			require.Equal(t, inet.AllRouters.GroupMAC(), eth.Dst)
		}
	}
	require.Len(t, at, rsMax)
	require.LessOrEqual(t, at[0], second)
	require.Equal(t, []int64{4 * second, 4 * second}, []int64{at[1] - at[0], at[2] - at[1]})
	_, ok := s.Route(s.now, far)
	require.False(t, ok)

	s.told = 0
	require.Equal(t, inet.DropNone, s.hear(routerAdvert(t, router, 1800)))
	s.turns()
	require.Equal(t, NeighbourLearned|RoutesChanged, s.told)
	hop, _ := s.Route(s.now, far)
	require.Equal(t, inet.LinkLocal(router), hop)
	mac, known, _, _ := s.neighbours.Lookup(s.now, hop, 1)
	require.True(t, known, "it told its MAC")
	require.Equal(t, router, mac)
	require.Equal(t, []any{uint8(49), 1400}, []any{s.HopLimit(&far), s.LinkMTU(&far)})
	hop, _ = s.Route(s.now, near)
	require.Equal(t, near, hop, "on the link")

	s.told = 0
	s.pass(101 * second)
	require.Equal(t, RoutesChanged, s.told)
	hop, _ = s.Route(s.now, near)
	require.Equal(t, inet.LinkLocal(router), hop, "the prefix's time is over")
	s.hear(routerAdvert(t, router, 0))
	_, ok = s.Route(s.now, far)
	require.False(t, ok, "it is no default router any more")
	require.Equal(t, uint64(2), s.Counters().RouterAdverts)

	deaf := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
	require.Equal(t, inet.DropNotOurs, deaf.hear(routerAdvert(t, router, 1800)))
	_, ok = deaf.Route(deaf.now, far)
	require.False(t, ok)
}

// A hop limit that would keep our packets from their destinations is not taken, and none where ours
// was configured.
func TestHopLimitOfARouter(t *testing.T) {
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	for _, c := range []struct {
		says, want uint8
		keep       bool
	}{{31, 64, false}, {32, 32, false}, {200, 200, false}, {0, 64, false}, {200, 64, true}} {
		s := newStation(t, func(cfg *Config) {
			with6(cfg)
			cfg.Discover, cfg.KeepTTL = true, c.keep
		})
		s.hear(icmp6(t, router, inet.LinkLocal(router), inet.AllNodes, 255,
			"86 00 0000 %02x 00 0708 00000000 00000000", c.says))
		require.Equal(t, c.want, s.HopLimit(&ours6), "%+v", c)
		require.EqualValues(t, 64, s.HopLimit(&ours))
	}
}

// A prefix of an advertisement is one of IPv6: the form in which we write IPv4 addresses is none.
func TestAdvertisedPrefixIsNoneOfIPv4(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg); cfg.Discover = true })
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	for _, p := range prefixes("::ffff:192.0.2.0/120", "::ffff:0.0.0.0/96", "::/64", "::/1") {
		s.hear(icmp6(t, router, inet.LinkLocal(router), inet.AllNodes, 255,
			"86 00 0000 00 00 0000 00000000 00000000 03 04 %02x 80 00010000 00010000 00000000 %x",
			p.Bits(), p.Addr().As16()))
		_, ok := s.Route(s.now, addr("192.0.2.1"))
		require.False(t, ok, p)
	}
}

// A router that says it is none any more is left.
// req: 4861-7.2-4
func TestRouterBecomesAHost(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg); cfg.Discover = true })
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	s.hear(routerAdvert(t, router, 1800))
	_, ok := s.Route(s.now, addr("2001:db8::1"))
	require.True(t, ok)
	s.pass(2 * second)
	s.told = 0
	s.hear(advert(t, router, inet.LinkLocal(router)))
	s.turns()
	require.Equal(t, NeighbourLearned|RoutesChanged, s.told)
	_, ok = s.Route(s.now, addr("2001:db8::1"))
	require.False(t, ok)
}

// RoutesChanged is told once in a second at most, however many advertisements come; a gateway that
// was lost is told of at once.
func TestRerouteIsSeldom(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg); cfg.Discover = true })
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	s.pass(20 * second)
	told := 0
	for range 100 {
		s.told = 0
		s.hear(routerAdvert(t, router, 1800))
		s.pass(second / 20)
		if s.told&RoutesChanged != 0 {
			told++
		}
	}
	require.InDelta(t, 5, told, 1)
	s.told = 0
	s.hear(routerAdvert(t, router, 1800))
	require.Equal(t, NeighbourLearned, s.told)
	s.pass(second)
	require.NotZero(t, s.told&RoutesChanged, "of the last one")
	s.told = 0
	s.pass(50 * second)
	require.Zero(t, s.told)

	s.Lost(s.now, other)
	require.False(t, s.HasNews(), "no gateway")
	s.Lost(s.now, inet.LinkLocal(router))
	require.Equal(t, RoutesChanged, s.TakeNews())
}

// What wants to happen at most once in an interval.
func TestLimiter(t *testing.T) {
	l := newLimiter()
	require.False(t, l.due(math.MaxInt64-1))
	require.True(t, l.want(100, 10))
	require.False(t, l.want(100, 10), "it is wanted already")
	require.True(t, l.due(100))
	require.False(t, l.due(100))
	require.True(t, l.want(103, 10))
	require.False(t, l.due(109))
	require.True(t, l.due(110))
}
