package stack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// said is a frame of a host that is about addresses, and when it was sent.
type said struct {
	at    int64
	what  string // probe, announce, request, reply; ns, na
	addr  string // the target
	frame []byte
}

// aboutAddrs reads a frame; ok is false when it is about something else.
func aboutAddrs(f []byte) (s said, ok bool) {
	eth, b, _ := inet.ParseEthernet(f)
	switch eth.Type {
	case inet.EtherTypeARP:
		a, d := inet.ParseARP(b)
		s = said{what: "request", addr: a.TargetIP.String()}
		switch {
		case d != inet.DropNone:
			return s, false
		case a.Op == inet.ARPReply:
			s.what = "reply"
		case a.SenderIP.IsUnspecified():
			s.what = "probe"
		case a.SenderIP == a.TargetIP:
			s.what = "announce"
		}
		return s, true
	case inet.EtherTypeIPv6:
		ip, m, _ := inet.ParseIPv6(b)
		if ip.NextHeader != inet.ProtoICMPv6 || m[0] != inet.NDNeighbourSolicitation && m[0] != inet.NDNeighbourAdvert {
			return s, false
		}
		s = said{what: map[byte]string{inet.NDNeighbourSolicitation: "ns", inet.NDNeighbourAdvert: "na"}[m[0]]}
		if ip.Src.IsUnspecified() {
			s.what = "probe"
		}
		if ip.Dst == inet.AllNodes {
			s.what = "announce"
		}
		s.addr = inet.Addr(m[8:24]).String()
		return s, true
	}
	return s, false
}

// listenTo collects what h says about addresses, from now on.
func (l *lab) listenTo(h *host) *[]said {
	all := &[]said{}
	begin := l.now
	h.nic.onSend = func(f []byte) {
		if s, ok := aboutAddrs(f); ok {
			s.at, s.frame = l.now-begin, slices.Clone(f)
			*all = append(*all, s)
		}
	}
	return all
}

// of selects what was said about addr, in words.
func of(all []said, addr string) (words []string, at []int64) {
	for _, s := range all {
		if s.addr == addr {
			words, at = append(words, s.what), append(at, s.at)
		}
	}
	return words, at
}

// claiming has host b check and announce its addresses.
func claiming(i int, cfg *Config) {
	if i == 1 {
		cfg.NoDAD, cfg.NoAnnounce = false, false
	}
}

// announcing has host b announce its addresses and use them at once.
func announcing(i int, cfg *Config) { cfg.NoAnnounce = i == 0 }

var (
	rivalMAC = inet.MAC{2, 0, 0, 0, 0, 0x77}
	theirs   = inet.AddrFrom4([4]byte{10, 0, 0, 2}) // which is host b's
	nobodys  = inet.AddrFrom4([4]byte{})
)

// arpFrame is an ARP packet to all.
func arpFrame(a inet.ARP) []byte {
	f := make([]byte, inet.EthernetLen+inet.ARPLen)
	eth := inet.Ethernet{Dst: inet.Broadcast, Src: a.SenderMAC, Type: inet.EtherTypeARP}
	eth.Put(f)
	a.Put(f[inet.EthernetLen:])
	return f
}

func (h *host) status(addr string) AddrStatus {
	i := slices.IndexFunc(h.addrs(), func(s AddrStatus) bool { return s.Addr.String() == addr })
	return h.addrs()[i]
}

// An IPv4 address is asked for three times, announced twice, and used from the first announcement
// on. That is all that is ever said of it unasked.
// req: 5227-2.1-1, 5227-2.1-2, 5227-2.1.1-1, 5227-2.1.1-2, 5227-2.3-1
func TestProbing(t *testing.T) {
	firsts := map[int64]bool{}
	for seed := range byte(40) {
		l := newLab(t, func(i int, cfg *Config) {
			claiming(i, cfg)
			cfg.Secret = [16]byte{seed, byte(i)}
		})
		all := l.listenTo(l.b)
		ask := arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), theirs))
		begin := l.now
		l.until("announced", func() bool {
			require.Equal(t, l.b.tentatives() > 0, len(*all) < 4)
			if len(*all) < 4 {
				_, err := l.b.Dial(addrPort(l.a, 7), newPeer(t, 1))
				require.ErrorIs(t, err, ErrTentative, "not yet")
				require.Empty(t, l.answersQuietly(l.a, l.b, ask), "nor answered for")
			}
			return len(*all) == 4
		})
		require.Equal(t, AddrUsable, l.b.status("10.0.0.2").State)
		l.pass(3600 * second)
		words, at := of(*all, "10.0.0.2")
		require.Equal(t, strings.Fields("probe probe probe announce announce"), words)
		require.Len(t, *all, 5)
		firsts[at[0]] = true
		require.LessOrEqual(t, at[0], second, "PROBE_WAIT")
		for i := 1; i <= 2; i++ {
			require.GreaterOrEqual(t, at[i]-at[i-1], second, "PROBE_MIN")
			require.LessOrEqual(t, at[i]-at[i-1], 2*second, "PROBE_MAX")
		}
		require.Equal(t, 2*second, at[3]-at[2], "ANNOUNCE_WAIT")
		require.Equal(t, 2*second, at[4]-at[3], "ANNOUNCE_INTERVAL")
		require.LessOrEqual(t, begin+at[3], l.now)
		if seed == 0 {
			require.Equal(t, unhex(t, `ffffffffffff 020000000002 0806
				0001 0800 06 04 0001 020000000002 00000000 000000000000 0a000002`), (*all)[0].frame)
			require.Equal(t, unhex(t, `ffffffffffff 020000000002 0806
				0001 0800 06 04 0001 020000000002 0a000002 000000000000 0a000002`), (*all)[3].frame)
			n := l.b.counters()
			require.Equal(t, []uint64{3, 2, 0, 0}, []uint64{n.ARPProbes, n.Announcements, n.AddrDefended, n.AddrConflicts})
		}
		l.b.nic.onSend = nil
		l.stop()
	}
	require.Greater(t, len(firsts), 30, "at random")
}

// Whatever shows that another host has the address ends the claim, at any time before the
// announcement. What does not show it, does not.
// req: 5227-2.1.1-3, 5227-2.1.1-4
func TestConflictWhileProbing(t *testing.T) {
	other := inet.AddrFrom4([4]byte{10, 0, 0, 9})
	for name, c := range map[string]struct {
		packet   inet.ARP
		conflict bool
	}{
		"a reply to the probe":    {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: theirs, TargetMAC: inet.MAC{2, 5: 2}, TargetIP: nobodys}, true},
		"a request of its owner":  {inet.RequestARP(rivalMAC, theirs, other), true},
		"an announcement":         {inet.AnnounceARP(rivalMAC, theirs), true},
		"a probe of another":      {inet.ProbeARP(rivalMAC, theirs), true},
		"an echo of our probe":    {inet.ProbeARP(inet.MAC{2, 5: 2}, theirs), false},
		"a question for it":       {inet.RequestARP(rivalMAC, other, theirs), false},
		"a probe for another":     {inet.ProbeARP(rivalMAC, other), false},
		"a reply about another":   {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: other, TargetMAC: inet.MAC{2, 5: 2}, TargetIP: nobodys}, false},
		"a reply to its question": {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: nobodys, TargetIP: theirs}, false},
	} {
		for probes := range 4 { // that were sent before
			l := newLab(t, claiming)
			all := l.listenTo(l.b)
			l.until("asked", func() bool { return len(*all) == probes })
			if probes == 3 {
				l.pass(2*second - 1) // the last moment
			}
			l.a.nic.inject(arpFrame(c.packet))
			l.b.Turn()
			if !c.conflict {
				require.Equal(t, AddrTentative, l.b.status("10.0.0.2").State, name)
				l.pass(10 * second)
				require.Equal(t, AddrUsable, l.b.status("10.0.0.2").State, name)
				require.Zero(t, l.b.counters().AddrConflicts)
				l.b.nic.onSend = nil
				l.stop()
				continue
			}
			l.pass(100 * second)
			words, _ := of(*all, "10.0.0.2")
			require.Equal(t, strings.Repeat("probe ", probes), strings.Join(append(words, ""), " "), name)
			want := AddrStatus{Addr: l.b.addr, State: AddrDuplicate, Conflicts: 1, Rival: rivalMAC}
			require.Equal(t, []AddrStatus{want}, l.b.addrs(), name)
			n := l.b.counters()
			require.Equal(t, []uint64{1, 1, 1, 0}, []uint64{n.AddrDuplicate, n.AddrConflicts, n.Inet[inet.DropSource], uint64(n.AddrTentative)}, name)
			_, err := l.b.Dial(addrPort(l.a, 7), newPeer(t, 1))
			require.ErrorIs(t, err, ErrNoRoute, name)
			require.Empty(t, l.answers(l.a, l.b, arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), theirs))), name)
			l.stop()
		}
	}
}

// Of two stacks that begin with one address one at most has it: the one that hears of the other first has it not. One that comes later
// hears of the first one's MAC, and the first answers and notices nothing. So it is for both families.
// req: 5227-2.5-1, 4862-5.4-1
func TestTwoStacksWithOneAddress(t *testing.T) {
	same := func(i int, cfg *Config) {
		cfg.NoDAD, cfg.NoAnnounce, cfg.Addr = false, false, netip.MustParsePrefix("10.0.0.5/24")
		cfg.Addrs = []netip.Prefix{netip.MustParsePrefix("fd00::5/64")}
	}
	l := newLab(t, same)
	l.pass(20 * second)
	for _, addr := range []string{"10.0.0.5", "fd00::5"} {
		states := []AddrState{l.a.status(addr).State, l.b.status(addr).State}
		require.Contains(t, states, AddrDuplicate, addr)
		require.NotContains(t, states, AddrTentative, addr)
	}
	l.stop()

	l = newLab(t, func(i int, cfg *Config) {
		same(i, cfg)
		cfg.NoDAD = i == 0
	})
	l.pass(20 * second)
	for _, addr := range []string{"10.0.0.5", "fd00::5"} {
		require.Equal(t, AddrStatus{netip.MustParseAddr(addr), AddrDuplicate, 1, l.a.mac}, l.b.status(addr))
		require.Equal(t, AddrStatus{Addr: netip.MustParseAddr(addr), State: AddrUsable}, l.a.status(addr))
	}
	require.Zero(t, l.a.counters().AddrConflicts)
	l.stop()
}

// So it is for two stacks that have one MAC, too, as clones of a machine may: whether they begin at
// once, one after the other, or meet when a link between them comes up.
// req: 5227-2.1.1-3
func TestTwoStacksWithOneMAC(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, begin := range []string{"at once", "one later", "on links of their own"} {
			for seed := range byte(10) {
				l := newLab(t, func(i int, cfg *Config) {
					cfg.NoDAD, cfg.NoAnnounce, cfg.QuickDAD = begin == "one later" && i == 0, false, quick
					cfg.MAC, cfg.Addr, cfg.Secret[1] = inet.MAC{2, 5: 1}, netip.MustParsePrefix("10.0.0.5/24"), seed
					cfg.Addrs = []netip.Prefix{netip.MustParsePrefix("fd00::5/64")}
				})
				if begin == "on links of their own" {
					for _, h := range l.hosts {
						h.nic.lose = func([]byte) bool { return true }
					}
					l.pass(20 * second)
					for _, h := range l.hosts {
						require.Equal(t, AddrUsable, h.status("10.0.0.5").State)
						h.nic.lose = nil
						require.NoError(t, h.LinkUp())
					}
				}
				l.pass(20 * second)
				for _, addr := range []string{"10.0.0.5", "fd00::5"} {
					a, b := l.a.status(addr), l.b.status(addr)
					states := []AddrState{a.State, b.State}
					require.NotContains(t, states, AddrTentative)
					require.Contains(t, states, AddrDuplicate, "%s %s %v", begin, addr, quick)
					if begin == "one later" {
						require.Equal(t, []AddrState{AddrUsable, AddrDuplicate}, states)
						require.Equal(t, l.b.mac, b.Rival)
					}
				}
				l.stop()
			}
		}
	}
}

// A station that claims an address in use is answered with one announcement in ten seconds and not
// believed; connections go on.
// req: 5227-2.4-1, 5227-2.4-2, 5227-2.4-3
func TestDefence(t *testing.T) {
	l := newLab(t, sixes)
	u, v := l.open()
	for addr, claim := range map[string]func(){
		"10.0.0.2": func() { l.a.nic.inject(arpFrame(inet.RequestARP(rivalMAC, theirs, inet.AddrFrom(l.a.addr)))) },
		"fd00::2": func() { // as such a host would announce itself
			m := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(), [6]byte(rivalMAC)))
			l.a.nic.inject(icmp6(rivalMAC, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), 255, m))
		},
	} {
		all := l.listenTo(l.b)
		before := l.b.counters()
		for range 35 {
			claim()
			l.pass(second)
		}
		words, at := of(*all, addr)
		require.Equal(t, strings.Fields("announce announce announce announce"), words)
		require.Equal(t, []int64{0, 10 * second, 20 * second, 30 * second}, at)
		n := l.b.counters()
		require.Equal(t, uint64(4), n.AddrDefended-before.AddrDefended)
		require.Equal(t, uint64(31), n.Own[DropDefenceLimited]-before.Own[DropDefenceLimited])
		require.Equal(t, uint64(35), n.AddrConflicts-before.AddrConflicts)
		require.Equal(t, AddrStatus{netip.MustParseAddr(addr), AddrUsable, 35, rivalMAC}, l.b.status(addr))
		l.b.nic.onSend = nil
	}
	u.send(50_000)
	v.send(50_000)
	l.until("there", func() bool { return u.edge == 50_000 && v.edge == 50_000 })
	l.stop()
}

// What a router may have passed on, or we may have sent, tells nothing of what is on the link.
func TestNoImpostor(t *testing.T) {
	l := newLab(t, sixes)
	all := l.listenTo(l.b)
	advert := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(), [6]byte(rivalMAC)))
	frame := func(mac inet.MAC, hopLimit uint8, message []byte) []byte {
		return icmp6(mac, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), hopLimit, message)
	}
	for _, f := range [][]byte{frame(rivalMAC, 64, advert), frame(rivalMAC, 255, []byte{inet.ICMP6Echo, 7: 0})} {
		l.a.nic.inject(f)
		l.pass(20 * second)
	}
	require.Empty(t, *all)
	require.Equal(t, uint64(2), l.b.counters().Inet[inet.DropSource])

	// A question of such a host, when we hear it, shows it too.
	ns := nsFrame(t, l, addr6(1), netip.MustParseAddr("fd00::5:0:2"), 255)
	copy(ns[6:], rivalMAC[:])
	l.a.nic.inject(ns)
	l.turns()
	l.a.nic.inject(frame(l.b.mac, 255, advert)) // which may be what we have just sent
	l.pass(second)
	words, _ := of(*all, "fd00::2")
	require.Equal(t, []string{"announce"}, words)
	require.Equal(t, AddrStatus{Addr: addr6(1), State: AddrUsable, Conflicts: 1, Rival: rivalMAC}, l.b.status("fd00::2"))
	l.a.nic.inject(frame(l.b.mac, 255, advert)) // which may not
	l.turns()
	require.Equal(t, AddrStatus{Addr: addr6(1), State: AddrUsable, Conflicts: 2, Rival: l.b.mac}, l.b.status("fd00::2"))
	l.b.nic.onSend = nil
	l.stop()
}

// Two stacks that both use one address unchecked do not answer each other's answers.
func TestDefenceIsNoLoop(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.NoAnnounce, cfg.Addr = false, netip.MustParsePrefix("10.0.0.5/24") })
	l.pass(3600 * second)
	for _, h := range l.hosts {
		n := h.counters()
		require.NotZero(t, n.AddrDefended)
		require.LessOrEqual(t, n.Announcements, uint64(announceMax4+2))
	}
	l.stop()
}

// All addresses are announced, not all at once: IPv4 twice, IPv6 three times, to all nodes,
// overriding, not solicited.
// req: 4861-7.2.6-1, 4861-7.2.6-2, 4861-7.2.6-3
func TestAnnouncements(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		announcing(i, cfg)
		if i == 1 {
			for _, a := range []string{"10.0.0.3/24", "10.0.0.4/24", "fd00::3/64", "fd00::4/64"} {
				cfg.Addrs = append(cfg.Addrs, netip.MustParsePrefix(a))
			}
		}
	})
	all := l.listenTo(l.b)
	l.pass(100 * second)
	require.Len(t, *all, 3*announceMax4+3*announceMax6)
	for i, s := range *all {
		require.Equal(t, "announce", s.what)
		if i > 0 {
			require.GreaterOrEqual(t, s.at-(*all)[i-1].at, 10*ms, "a small delay")
		}
	}
	for addr, interval := range map[string]int64{"10.0.0.2": 2 * second, "10.0.0.4": 2 * second, "fd00::3": second, inet.LinkLocal(l.b.mac).String(): second} {
		_, at := of(*all, addr)
		for i := 1; i < len(at); i++ {
			require.GreaterOrEqual(t, at[i]-at[i-1], interval, addr)
			require.Less(t, at[i]-at[i-1], interval+second/2, addr)
		}
		require.Less(t, at[0], second/2)
	}
	i := slices.IndexFunc(*all, func(s said) bool { return s.addr == "fd00::3" })
	eth, ip, m := split6(t, (*all)[i].frame)
	require.Equal(t, inet.Ethernet{Dst: inet.AllNodes.GroupMAC(), Src: l.b.mac, Type: inet.EtherTypeIPv6}, eth)
	require.Equal(t, []any{"fd00::3", inet.AllNodes, uint8(255)}, []any{ip.Src.String(), ip.Dst, ip.HopLimit})
	require.Equal(t, unhex(t, fmt.Sprintf("88 00 %x 20000000 %x 0201 %x", m[2:4], [16]byte(ip.Src), [6]byte(l.b.mac))), m)
	l.b.nic.onSend = nil
	l.stop()
}

// What a router says is RetransTimer stands between advertisements, too.
// req: 4861-7.2.6-1
func TestAnnouncementsKeepRetransTimer(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		announcing(i, cfg)
		cfg.Discover = i == 1
	})
	all := l.listenTo(l.b)
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	m := raFrameBody()
	m[14], m[15] = 0x13, 0x88 // 5 s
	l.a.nic.inject(icmp6(router, inet.AllNodes.GroupMAC(), inet.LinkLocal(router).Netip(), inet.AllNodes.Netip(), 255, m))
	l.pass(100 * second)
	_, at := of(*all, "fd00::2")
	require.Len(t, at, announceMax6)
	require.GreaterOrEqual(t, at[1]-at[0], 5*second)
	require.GreaterOrEqual(t, at[2]-at[1], 5*second)
	l.b.nic.onSend = nil
	l.stop()
}

// The quick check takes a third of a second, of either family.
func TestQuickDAD(t *testing.T) {
	for seed := range byte(20) {
		l := newLab(t, func(i int, cfg *Config) {
			claiming(i, cfg)
			cfg.QuickDAD = true
			cfg.Secret[1] = seed
			cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(i), 64)}
		})
		all := l.listenTo(l.b)
		l.pass(350 * ms)
		require.Zero(t, l.b.tentatives())
		l.pass(10 * second)
		for addr, announcements := range map[string]int{"10.0.0.2": announceMax4, "fd00::2": announceMax6} {
			words, at := of(*all, addr)
			require.Equal(t, append(strings.Fields("probe probe probe"), slices.Repeat([]string{"announce"}, announcements)...), words)
			require.GreaterOrEqual(t, at[3], 200*ms)
		}
		l.b.nic.onSend = nil
		l.stop()
	}
}

// A neighbour that knew another MAC for the address sends to the new one as soon as it is
// announced; without that, to the old.
func TestNeighboursLearnFromAnnouncements(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, six := range []bool{false, true} {
			l := newLab(t, sixes)
			to := addrPort(l.b, 7)
			if six {
				to = netip.AddrPortFrom(addr6(1), 7)
			}
			u := newPeer(t, 1)
			_, err := l.a.Dial(to, u)
			require.NoError(t, err)
			l.until("refused", func() bool { return u.closed == 1 })

			l.b.Stop()
			l.turns()
			cfg := l.b.cfg
			cfg.MAC, cfg.NoAnnounce = inet.MAC{2, 0, 0, 0, 0, 0xbb}, silent
			p, err := New(cfg)
			require.NoError(t, err)
			l.b.Poller = p
			l.pass(100 * ms)
			_, err = l.a.Dial(to, newPeer(t, 1))
			require.NoError(t, err)
			var syn inet.MAC
			l.a.nic.onSend = func(f []byte) { syn = inet.MAC(f[:6]) }
			l.a.Turn()
			require.Equal(t, silent, syn != cfg.MAC)
			l.a.nic.onSend = nil
			l.stop()
		}
	}
}

// When the link comes up, addresses are probed while they are used, and announced then; connections
// notice nothing.
// req: 5227-2.1-3
func TestLinkUp(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		claiming(i, cfg)
	})
	l.pass(20 * second)
	u, v := l.open()
	l.pass(second)
	all := l.listenTo(l.b)
	require.NoError(t, l.b.LinkUp())
	l.b.Turn()
	for i := range uint64(8) {
		u.send(1000)
		l.until("there", func() bool { return v.edge == 1000*(i+1) })
		l.pass(second)
	}
	l.pass(20 * second)
	words, at := of(*all, "10.0.0.2")
	require.Equal(t, strings.Fields("probe probe probe announce announce"), words)
	require.GreaterOrEqual(t, at[3], 4*second)
	words, _ = of(*all, "fd00::2")
	require.Equal(t, strings.Fields("probe announce announce announce"), words)
	require.Zero(t, l.b.counters().AddrDuplicate)
	l.b.nic.onSend = nil
	l.stop()
}

// A link that comes and goes is not answered each time.
func TestLinkUpsAreLimited(t *testing.T) {
	l := newLab(t, announcing)
	l.pass(20 * second)
	all := l.listenTo(l.b)
	for range 1000 {
		require.NoError(t, l.b.LinkUp())
		l.b.Turn()
		l.pass(10 * ms)
	}
	l.pass(60 * second)
	require.LessOrEqual(t, len(*all), 8, "ten seconds of it, two apart, and the last one")
	require.GreaterOrEqual(t, len(*all), 5)
	for i := 1; i < len(*all); i++ {
		require.GreaterOrEqual(t, (*all)[i].at-(*all)[i-1].at, 2*second)
	}
	n := l.b.counters()
	require.Equal(t, uint64(1000), n.LinkUps)
	require.Greater(t, n.Own[DropAnnounceLimited], uint64(900))
	l.b.nic.onSend = nil
	l.stop()
}

// An address that is found to be another's when the link comes up is given up, or, where a
// connection needs it, defended.
// req: 5227-2.1-3, 5227-2.4-1
func TestConflictAfterLinkUp(t *testing.T) {
	for _, used := range []bool{false, true} {
		l := newLab(t, claiming)
		l.pass(20 * second)
		var u, v *peer
		if used {
			u, v = l.open()
		}
		all := l.listenTo(l.b)
		require.NoError(t, l.b.LinkUp())
		l.until("asked", func() bool { return len(*all) == 1 })
		for range 3 {
			l.a.nic.inject(arpFrame(inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: theirs, TargetMAC: l.b.mac, TargetIP: nobodys}))
			l.b.Turn()
		}
		l.pass(30 * second)
		words, _ := of(*all, "10.0.0.2")
		l.b.nic.onSend = nil
		if !used {
			require.Equal(t, []string{"probe"}, words)
			require.Equal(t, AddrDuplicate, l.b.status("10.0.0.2").State)
			l.stop()
			continue
		}
		require.Equal(t, []string{"probe", "announce"}, words)
		require.Equal(t, AddrUsable, l.b.status("10.0.0.2").State)
		u.send(1000)
		l.until("there", func() bool { return v.edge == 1000 })
		l.stop()
	}
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
			l.until("it is checked again", func() bool { return l.b.host.local[0].step == stepProbe })
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

// A LinkUp while an address is checked for the first time begins the check anew: what was asked
// before may have been lost.
func TestLinkUpWhileProbing(t *testing.T) {
	l := newLab(t, claiming)
	all := l.listenTo(l.b)
	l.until("asked", func() bool { return len(*all) == 2 })
	require.NoError(t, l.b.LinkUp())
	l.pass(20 * second)
	words, _ := of(*all, "10.0.0.2")
	require.Equal(t, strings.Fields("probe probe probe probe probe announce announce"), words)
	l.b.nic.onSend = nil
	l.stop()
}

// After ten conflicts a new address is tried once a minute at most.
// req: 5227-2.1.1-5
func TestProbingIsLimited(t *testing.T) {
	l := newLab(t, claiming)
	l.pass(20 * second)
	var began []int64
	try := func(i int) {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i)}), 24)
		require.NoError(t, l.b.AddAddr(prefix))
		all := l.listenTo(l.b)
		begin := l.now
		l.until("asked", func() bool { return len(*all) == 1 })
		began = append(began, begin+(*all)[0].at)
		l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, inet.AddrFrom(prefix.Addr()))))
		l.turns()
		require.Equal(t, AddrDuplicate, l.b.status(prefix.Addr().String()).State)
		require.NoError(t, l.b.RemoveAddr(prefix.Addr()))
	}
	for i := range 13 {
		try(i)
	}
	for i := 1; i < len(began); i++ {
		if apart := began[i] - began[i-1]; i < 10 {
			require.LessOrEqual(t, apart, second)
		} else {
			require.GreaterOrEqual(t, apart, 59*second) // the random wait before the probe is part of the try
		}
	}
	l.b.nic.onSend = nil
	l.stop()
}

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
	words, _ := of(*all, "10.0.0.7")
	require.Equal(t, strings.Fields("probe probe probe announce announce"), words)
	words, _ = of(*all, "fd00::7")
	require.Equal(t, strings.Fields("probe announce announce announce"), words)
	l.b.nic.onSend = nil

	w := newPeer(t, 1)
	_, err := l.a.Dial(netip.MustParseAddrPort("10.0.0.7:7"), w)
	require.NoError(t, err)
	l.until("established", func() bool { return w.opened && len(l.accepted) == 2 })
	_, ok := l.b.route(inet.AddrFrom(netip.MustParseAddr("172.16.9.9")))
	require.True(t, ok)
	for _, a := range []string{"10.0.0.7", "172.16.0.7"} {
		require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr(a)))
	}
	l.until("reset", func() bool { return w.closed == 1 && l.accepted[1].closed == 1 })
	require.ErrorIs(t, w.err, ErrReset)
	require.ErrorIs(t, l.accepted[1].err, ErrAddrRemoved)
	_, ok = l.b.route(inet.AddrFrom(netip.MustParseAddr("172.16.9.9")))
	require.False(t, ok)
	_, ok = l.b.route(inet.AddrFrom(netip.MustParseAddr("10.0.0.99")))
	require.True(t, ok, "the first address is of that network, too")
	u.send(1000)
	l.until("the network's other address stays", func() bool { return v.edge == 1000 })
	require.Empty(t, l.answers(l.a, l.b, arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), inet.AddrFrom(netip.MustParseAddr("10.0.0.7"))))))

	for range 2 * inet.RoutesMax { // each takes its route along
		require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.7/24")))
		require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr("10.0.0.7")))
	}
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.2/24")), "is ours already")
	require.ErrorContains(t, l.b.AddAddr(netip.MustParsePrefix("224.0.0.1/24")), "unicast")
	require.ErrorContains(t, l.b.RemoveAddr(netip.MustParseAddr("10.0.0.9")), "none of ours")
	require.ErrorContains(t, l.b.RemoveAddr(l.b.addr), "or the first")
	for i := range addrsMax - len(l.b.addrs()) {
		require.NoError(t, l.b.AddAddr(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}), 16)))
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
			cfg.Routes = append(cfg.Routes, inet.Route{Prefix: net, Gateway: netip.MustParseAddr("10.0.0.9")})
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
	l.stop()
}

// The first address of IPv6 brings a link-local one, the first after all were removed, too, and
// routers are asked again.
func TestFirstIPv6AddrAgain(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.Discover = i == 1 })
	linkLocal := inet.LinkLocal(l.b.mac).Netip()
	for range 2 {
		solicitations := 0
		l.b.nic.onSend = func(f []byte) {
			if eth, b, _ := inet.ParseEthernet(f); eth.Type == inet.EtherTypeIPv6 && b[inet.IPv6Len] == inet.NDRouterSolicitation {
				solicitations++
			}
		}
		require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("fd00::7/64")))
		require.Len(t, l.b.addrs(), 3)
		require.Equal(t, linkLocal, l.b.addrs()[2].Addr)
		l.pass(20 * second)
		require.Equal(t, rsMax, solicitations)
		for _, a := range []netip.Addr{netip.MustParseAddr("fd00::7"), linkLocal} {
			require.NoError(t, l.b.RemoveAddr(a))
		}
		_, err := l.b.Dial(netip.AddrPortFrom(addr6(0), 7), newPeer(t, 1))
		require.ErrorIs(t, err, ErrNetUnreachable)
	}
	l.b.nic.onSend = nil
	l.stop()
}

// Without Bufs nothing is claimed; the rest of the check comes when there are some.
func TestProbingWithoutBufs(t *testing.T) {
	l := newLab(t, claiming)
	all := l.listenTo(l.b)
	bufs := make([]mem.Buf, l.b.pool.Size())
	bufs = bufs[:l.b.pool.AllocN(bufs)]
	l.pass(30 * second)
	require.Empty(t, *all)
	require.Equal(t, AddrTentative, l.b.status("10.0.0.2").State)
	require.NotZero(t, l.b.counters().Own[DropNoBuf])
	l.b.pool.FreeN(bufs)
	l.pass(30 * second)
	words, _ := of(*all, "10.0.0.2")
	require.Equal(t, strings.Fields("probe probe probe announce announce"), words)
	l.b.nic.onSend = nil
	l.stop()
}

// Of a Group one member speaks, and all hear: an address is another's for all of them, or ours.
func TestGroupClaimsOnce(t *testing.T) {
	for _, claim := range []bool{false, true} {
		l := groupLabTuned(t, 3, func(cfg *Config) { cfg.NoDAD, cfg.NoAnnounce = false, false })
		var words []string
		for _, h := range l.hosts[1:] {
			h.nic.onSend = func(f []byte) {
				if s, ok := aboutAddrs(f); ok {
					words = append(words, s.what)
				}
			}
		}
		l.until("asked", func() bool { return len(words) == 1 })
		if claim {
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
		}
		l.pass(20 * second)
		want, state := strings.Fields("probe probe probe announce announce"), AddrUsable
		if claim {
			want, state = []string{"probe"}, AddrDuplicate
		}
		require.Equal(t, want, words)
		for _, h := range l.hosts[1:] {
			require.Equal(t, state, h.status("10.0.0.2").State)
		}
		words = nil
		for range 5 { // which each come to any of them
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
			l.pass(second)
		}
		require.Len(t, words, map[bool]int{false: 1, true: 0}[claim])
		for _, h := range l.hosts[1:] {
			h.nic.onSend = nil
		}
		l.stop()
	}
}

// Whichever member of a Group hears a claim on an address in use, the one that speaks answers it,
// for both families.
func TestGroupDefends(t *testing.T) {
	l := groupLabTuned(t, 3, func(cfg *Config) {
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(1), 64)}
	})
	m := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(), [6]byte(rivalMAC)))
	claims := map[string][]byte{
		"10.0.0.2": arpFrame(inet.AnnounceARP(rivalMAC, theirs)),
		"fd00::2":  icmp6(rivalMAC, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), 255, m),
	}
	defended := uint64(0)
	for addr, claim := range claims {
		var words []string
		for _, h := range l.hosts[1:] {
			h.nic.onSend = func(f []byte) {
				if s, ok := aboutAddrs(f); ok && s.addr == addr {
					words = append(words, s.what)
				}
			}
		}
		for i := range 8 { // which each come to any of them
			l.a.nic.inject(claim)
			l.pass(11 * second)
			require.Equal(t, slices.Repeat([]string{"announce"}, i+1), words, addr)
		}
		defended += 8
		for i, h := range l.hosts[1:] { // it is counted where it was sent
			n := h.counters()
			want := map[bool]uint64{true: defended}[i == 0]
			require.Equal(t, []uint64{defended, want, want}, []uint64{n.AddrConflicts, n.AddrDefended, n.Announcements}, addr)
		}
	}
	for _, h := range l.hosts[1:] {
		h.nic.onSend = nil
	}
	l.stop()
}

// Both ends of DPDK's net_tap have one MAC: what comes from it is not always an echo.
func TestBothEndsHaveOneMAC(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		claiming(i, cfg)
		cfg.MAC = inet.MAC{2, 0, 0, 0, 0, 1}
	})
	l.pass(20 * second)
	l.open()
	u := newPeer(t, 1)
	_, err := l.a.Dial(netip.AddrPortFrom(addr6(1), 9), u)
	require.NoError(t, err)
	l.until("refused", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrRefused)
	l.stop()
}

// A frame that is an echo of ours is no conflict, of neither family.
// req: 4862-5.4.3-1
func TestEchoesAreNoConflict(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		claiming(i, cfg)
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(i), 64)}
	})
	var sent [][]byte
	l.b.nic.onSend = func(f []byte) { sent = append(sent, slices.Clone(f)) }
	for i := range 60 {
		for _, f := range sent {
			l.a.nic.inject(f)
		}
		sent = nil
		l.pass(second / 2)
		if i == 30 { // nor when they are checked again
			require.Zero(t, l.b.tentatives())
			require.NoError(t, l.b.LinkUp())
		}
	}
	require.Zero(t, l.b.counters().ARPReplies, "an echo of a probe is not answered")
	l.b.nic.onSend = nil
	n := l.b.counters()
	require.Zero(t, n.AddrConflicts)
	require.NotZero(t, n.Inet[inet.DropSource])
	u, _ := l.open()
	require.Equal(t, tcp.Established, u.conn.tcp.State())
	l.stop()
}
