package stack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
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
		if ip.NextHeader != inet.ProtoICMPv6 || m[0] != inet.NDNeighbourSolicitation &&
			m[0] != inet.NDNeighbourAdvert {
			return s, false
		}
		s = said{what: map[byte]string{inet.NDNeighbourSolicitation: "ns",
			inet.NDNeighbourAdvert: "na"}[m[0]]}
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
			require.Equal(t, []uint64{3, 2, 0, 0}, []uint64{n.ARPProbes, n.Announcements, n.AddrDefended,
				n.AddrConflicts})
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
		"a reply to the probe": {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: theirs,
			TargetMAC: inet.MAC{2, 5: 2}, TargetIP: nobodys}, true},
		"a request of its owner": {inet.RequestARP(rivalMAC, theirs, other), true},
		"an announcement":        {inet.AnnounceARP(rivalMAC, theirs), true},
		"a probe of another":     {inet.ProbeARP(rivalMAC, theirs), true},
		"an echo of our probe":   {inet.ProbeARP(inet.MAC{2, 5: 2}, theirs), false},
		"a question for it":      {inet.RequestARP(rivalMAC, other, theirs), false},
		"a probe for another":    {inet.ProbeARP(rivalMAC, other), false},
		"a reply about another": {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: other,
			TargetMAC: inet.MAC{2, 5: 2}, TargetIP: nobodys}, false},
		"a reply to its question": {inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: nobodys,
			TargetIP: theirs}, false},
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
			require.Equal(t, []uint64{1, 1, 1, 0},
				[]uint64{n.AddrDuplicate, n.AddrConflicts, n.Inet[inet.DropSource], uint64(n.AddrTentative)},
				name)
			_, err := l.b.Dial(addrPort(l.a, 7), newPeer(t, 1))
			require.ErrorIs(t, err, ErrNoRoute, name)
			require.Empty(
				t, l.answers(l.a, l.b, arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), theirs))),
				name)
			l.stop()
		}
	}
}

// Of two stacks that begin with one address one at most has it: the one that hears of the other
// first has it not. One that comes later hears of the first one's MAC, and the first answers and
// notices nothing. So it is for both families.
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
		require.Equal(t, AddrStatus{netip.MustParseAddr(addr), AddrDuplicate, 1, l.a.mac},
			l.b.status(addr))
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
					cfg.MAC, cfg.Addr, cfg.Secret[1] = inet.MAC{2, 5: 1}, netip.MustParsePrefix("10.0.0.5/24"),
						seed
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
		for addr, announcements := range map[string]int{"10.0.0.2": announceMax4,
			"fd00::2": announceMax6} {
			words, at := of(*all, addr)
			require.Equal(
				t,
				append(strings.Fields("probe probe probe"),
					slices.Repeat([]string{"announce"}, announcements)...), words)
			require.GreaterOrEqual(t, at[3], 200*ms)
		}
		l.b.nic.onSend = nil
		l.stop()
	}
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
			// the random wait before the probe is part of the try
			require.GreaterOrEqual(t, apart, 59*second)
		}
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
