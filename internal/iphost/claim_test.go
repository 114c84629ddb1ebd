package iphost

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// An IPv4 address is asked for three times, announced twice, and used from the first announcement
// on. That is all that is ever said of it unasked.
// req: 5227-2.1-1, 5227-2.1-2, 5227-2.1.1-1, 5227-2.1.1-2, 5227-2.3-1
func TestProbing(t *testing.T) {
	firsts := map[int64]bool{}
	for seed := range byte(40) {
		s := newSeeded(t, seed, nil)
		s.until(func() bool {
			require.Equal(t, s.Tentatives() > 0, len(s.words) < 4)
			require.Equal(t, s.Tentatives() == 0, s.IsLocal(&ours))
			if s.Tentatives() > 0 {
				said := len(s.words)
				s.hear(arp(inet.RequestARP(rivalMAC, other, ours)))
				require.Len(t, s.words, said, "nor answered for")
			}
			return len(s.words) == 4
		})
		require.Equal(t, Usable, s.state("10.0.0.2").State)
		s.pass(3600 * second)
		words, at := s.said("10.0.0.2")
		require.Equal(t, "probe probe probe announce announce", words)
		require.Len(t, s.frames, 5)
		firsts[at[0]] = true
		require.LessOrEqual(t, at[0], second, "PROBE_WAIT")
		for i := 1; i <= 2; i++ {
			require.GreaterOrEqual(t, at[i]-at[i-1], second, "PROBE_MIN")
			require.LessOrEqual(t, at[i]-at[i-1], 2*second, "PROBE_MAX")
		}
		require.Equal(t, 2*second, at[3]-at[2], "ANNOUNCE_WAIT")
		require.Equal(t, 2*second, at[4]-at[3], "ANNOUNCE_INTERVAL")
		if seed == 0 {
			require.Equal(t, unhex(t, `ffffffffffff 020000000002 0806
				0001 0800 06 04 0001 020000000002 00000000 000000000000 0a000002`), s.frames[0])
			require.Equal(t, unhex(t, `ffffffffffff 020000000002 0806
				0001 0800 06 04 0001 020000000002 0a000002 000000000000 0a000002`), s.frames[3])
			require.Equal(t, Counters{ARPProbes: 3, Announcements: 2}, *s.Counters())
		}
	}
	require.Greater(t, len(firsts), 30, "at random")
}

// Whatever shows that another host has the address ends the claim, at any time before the
// announcement. What does not show it, does not.
// req: 5227-2.1.1-3, 5227-2.1.1-4
func TestConflictWhileProbing(t *testing.T) {
	reply := func(from inet.Addr) inet.ARP {
		return inet.ARP{
			Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: from, TargetMAC: ourMAC, TargetIP: nobody,
		}
	}
	for name, c := range map[string]struct {
		packet   inet.ARP
		conflict bool
	}{
		"a reply to the probe":   {reply(ours), true},
		"a request of its owner": {inet.RequestARP(rivalMAC, ours, other), true},
		"an announcement":        {inet.AnnounceARP(rivalMAC, ours), true},
		"a probe of another":     {inet.ProbeARP(rivalMAC, ours), true},
		"an echo of our probe":   {inet.ProbeARP(ourMAC, ours), false},
		"a question for it":      {inet.RequestARP(rivalMAC, other, ours), false},
		"a probe for another":    {inet.ProbeARP(rivalMAC, other), false},
		"a reply about another":  {reply(other), false},
		"a reply to its question": {
			inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: nobody, TargetIP: ours}, false,
		},
	} {
		for probes := range 4 { // that were sent before
			s := newStation(t, nil)
			s.until(func() bool { return len(s.words) == probes })
			if probes == 3 {
				s.pass(2*second - 1) // the last moment
			}
			s.told = 0
			drop := s.hear(arp(c.packet))
			if !c.conflict {
				s.pass(10 * second)
				require.Equal(t, Usable, s.state("10.0.0.2").State, name)
				require.Zero(t, s.Counters().AddrConflicts)
				continue
			}
			require.Equal(t, inet.DropSource, drop)
			require.Equal(t, AddrChanged, s.told)
			s.pass(100 * second)
			s.heardSay(t, "10.0.0.2", strings.TrimSpace(strings.Repeat("probe ", probes)))
			require.Equal(t, Address{Addr: ours, State: Duplicate, Conflicts: 1, Rival: rivalMAC},
				s.state("10.0.0.2"), name)
			require.Equal(t,
				Counters{ARPProbes: uint64(probes), AddrDuplicate: 1, AddrConflicts: 1}, *s.Counters())
			s.forget()
			s.hear(arp(inet.RequestARP(rivalMAC, other, ours)))
			require.Empty(t, s.frames, name)
		}
	}
}

// An IPv6 address is used when a second has passed without anybody's claim; it is asked for from
// ::.
// req: 4862-5.4-1, 4862-5.4.2-1, 4862-5.4.3-1, 4862-5.4.4-1
func TestDuplicateAddressDetection(t *testing.T) {
	for claim, frame := range map[string][]byte{
		"": nil, "advertisement": advert(t, rivalMAC, ours6),
		"solicitation": question(t, rivalMAC, inet.Addr{}, ours6),
	} {
		s := newStation(t, func(cfg *Config) { with6(cfg); cfg.NoAnnounce = true })
		require.Equal(t, 3, s.Tentatives(), "the link-local one is checked too")
		ask := question(t, rivalMAC, addr("fd00::9"), ours6)
		require.Equal(t, inet.DropNotOurs, s.hear(ask), "not yet answered for")
		s.until(func() bool { words, _ := s.said("fd00::2"); return words == "probe" })
		require.LessOrEqual(t, s.now-begin, second)
		if frame != nil {
			require.Equal(t, inet.DropSource, s.hear(frame))
		}
		s.pass(6 * second)
		require.Zero(t, s.Tentatives())
		require.Equal(t, claim == "", s.IsLocal(&ours6), claim)
		s.forget()
		s.hear(ask)
		require.Equal(t, claim == "", len(s.frames) == 1, claim)
		require.Equal(t, claim != "", s.Counters().AddrDuplicate == 1)
	}
}

// Of two stacks that begin with one address one at most has it: the one that hears of the other
// first has it not. One that comes later hears of the first one's MAC, and the first answers and
// notices nothing. So it is for both families.
// req: 5227-2.5-1, 4862-5.4-1
func TestTwoStacksWithOneAddress(t *testing.T) {
	pair := func(first func(cfg *Config)) (a, b *station) {
		a = newSeeded(t, 2, func(cfg *Config) {
			with6(cfg)
			first(cfg)
			cfg.MAC[5] = 1
		})
		b = newStation(t, with6)
		link(a, b)
		a.pass(20 * second)
		return a, b
	}
	a, b := pair(func(*Config) {})
	for _, about := range []string{"10.0.0.2", "fd00::2"} {
		states := []State{a.state(about).State, b.state(about).State}
		require.Contains(t, states, Duplicate, about)
		require.NotContains(t, states, Tentative, about)
	}
	a, b = pair(func(cfg *Config) { cfg.NoDAD = true })
	for _, about := range []string{"10.0.0.2", "fd00::2"} {
		require.Equal(t, Address{Addr: addr(about), State: Duplicate, Conflicts: 1, Rival: a.cfg.MAC},
			b.state(about))
		require.Equal(t, Address{Addr: addr(about), State: Usable}, a.state(about))
	}
	require.Zero(t, a.Counters().AddrConflicts)
}

// So it is for two stacks that have one MAC, too, as clones of a machine may: whether they begin at
// once, one after the other, or meet when a link between them comes up.
// req: 5227-2.1.1-3
func TestTwoStacksWithOneMAC(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, begin := range []string{"at once", "one later", "on links of their own"} {
			for seed := range byte(10) {
				a := newSeeded(t, seed, func(cfg *Config) {
					with6(cfg)
					cfg.QuickDAD, cfg.NoDAD = quick, begin == "one later"
				})
				b := newSeeded(t, seed+100, func(cfg *Config) { with6(cfg); cfg.QuickDAD = quick })
				link(a, b)
				if begin == "on links of their own" {
					a.cut = true
					a.pass(20 * second)
					a.cut = false
					for _, s := range []*station{a, b} {
						require.Zero(t, s.Tentatives())
						s.LinkUp(s.now)
					}
				}
				a.pass(20 * second)
				for _, about := range []string{"10.0.0.2", "fd00::2"} {
					states := []State{a.state(about).State, b.state(about).State}
					require.NotContains(t, states, Tentative)
					require.Contains(t, states, Duplicate, "%s %s %v", begin, about, quick)
					if begin == "one later" {
						require.Equal(t, []State{Usable, Duplicate}, states)
						require.Equal(t, ourMAC, b.state(about).Rival)
					}
				}
			}
		}
	}
}

// The quick check takes a third of a second, of either family.
func TestQuickDAD(t *testing.T) {
	for seed := range byte(20) {
		s := newSeeded(t, seed, func(cfg *Config) { with6(cfg); cfg.QuickDAD = true })
		s.pass(350 * second / 1000)
		require.Zero(t, s.Tentatives())
		s.pass(10 * second)
		for about, n := range map[string]int{"10.0.0.2": announceMax4, "fd00::2": announceMax6} {
			s.heardSay(t, about, "probe probe probe"+strings.Repeat(" announce", n))
			_, at := s.said(about)
			require.GreaterOrEqual(t, at[3], second/5)
		}
	}
}

// After ten conflicts a new address is tried once a minute at most.
// req: 5227-2.1.1-5
func TestProbingIsLimited(t *testing.T) {
	s := newStation(t, nil)
	s.pass(20 * second)
	var began []int64
	for i := range byte(13) {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, 100 + i}), 24)
		require.NoError(t, s.Add(s.now, prefix))
		s.forget()
		s.until(func() bool { return len(s.words) == 1 })
		began = append(began, s.now)
		s.hear(arp(inet.AnnounceARP(rivalMAC, inet.AddrFrom(prefix.Addr()))))
		require.Equal(t, Duplicate, s.state(prefix.Addr().String()).State)
		s.Remove(s.now, inet.AddrFrom(prefix.Addr()))
	}
	for i := 1; i < len(began); i++ {
		if apart := began[i] - began[i-1]; i < 10 {
			require.LessOrEqual(t, apart, second)
		} else {
			// The random wait before the probe is part of the try.
			require.GreaterOrEqual(t, apart, 59*second)
		}
	}
}

// Without room nothing is claimed, and little tried; the rest of the check comes when there is
// some.
func TestProbingWithoutRoom(t *testing.T) {
	s := newStation(t, nil)
	s.full = true
	s.pass(30 * second)
	require.Empty(t, s.frames)
	require.Equal(t, Tentative, s.state("10.0.0.2").State)
	s.full = false
	s.pass(30 * second)
	s.heardSay(t, "10.0.0.2", "probe probe probe announce announce")
}

// All addresses are announced, not all at once: IPv4 twice, IPv6 three times, to all nodes,
// overriding, not solicited.
// req: 4861-7.2.6-1, 4861-7.2.6-2, 4861-7.2.6-3
func TestAnnouncements(t *testing.T) {
	s := newStation(t, func(cfg *Config) {
		cfg.NoDAD = true
		cfg.Addrs = prefixes("10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24", "fd00::3/64", "fd00::4/64")
	})
	s.pass(100 * second)
	var at []int64
	for _, w := range s.words {
		if w.what != "report" {
			require.Equal(t, "announce", w.what)
			at = append(at, w.at)
		}
	}
	require.Len(t, at, 3*announceMax4+3*announceMax6)
	for i := 1; i < len(at); i++ {
		require.GreaterOrEqual(t, at[i]-at[i-1], second/100, "a small delay")
	}
	for about, interval := range map[string]int64{
		"10.0.0.2": 2 * second, "10.0.0.4": 2 * second, "fd00::3": second, "fe80::ff:fe00:2": second,
	} {
		_, at := s.said(about)
		for i := 1; i < len(at); i++ {
			require.GreaterOrEqual(t, at[i]-at[i-1], interval, about)
			require.Less(t, at[i]-at[i-1], interval+second/2, about)
		}
		require.Less(t, at[0], second/2)
	}
	for _, w := range s.words {
		if w.about == "fd00::3" {
			require.Equal(t, advert(t, ourMAC, addr("fd00::3")), w.frame)
		}
	}
}

// What a router says is RetransTimer stands between advertisements, too.
// req: 4861-7.2.6-1
func TestAnnouncementsKeepRetransTimer(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); cfg.NoDAD, cfg.Discover = true, true })
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	s.hear(icmp6(t, router, inet.LinkLocal(router), inet.AllNodes, 255,
		"86 00 0000 11 00 0101 00000000 00001388"))
	s.pass(100 * second)
	_, at := s.said("fd00::2")
	require.Len(t, at, announceMax6)
	require.GreaterOrEqual(t, at[1]-at[0], 5*second)
	require.GreaterOrEqual(t, at[2]-at[1], 5*second)
}

// A station that claims an address in use is answered with one announcement in ten seconds and not
// believed.
// req: 5227-2.4-1, 5227-2.4-2, 5227-2.4-3
func TestDefence(t *testing.T) {
	for about, claim := range map[string][]byte{
		"10.0.0.2": arp(inet.RequestARP(rivalMAC, ours, other)),
		"fd00::2":  advert(t, rivalMAC, ours6), // as such a host would announce itself
	} {
		s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
		for range 35 {
			s.hear(claim)
			s.pass(second)
		}
		words, at := s.said(about)
		require.Equal(t, "announce announce announce announce", words)
		require.Equal(t, []int64{0, 10 * second, 20 * second, 30 * second}, at)
		n := s.Counters()
		require.Equal(t, Counters{
			AddrConflicts: 35, AddrDefended: 4, DefenceLimited: 31, Announcements: 4,
		}, *n)
		require.Equal(t, Address{Addr: addr(about), State: Usable, Conflicts: 35, Rival: rivalMAC},
			s.state(about))
	}
}

// What a router may have passed on, or we may have sent, tells nothing of what is on the link.
func TestNoImpostor(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
	far := icmp6(t, rivalMAC, ours6, inet.AllNodes, 64,
		"88 00 0000 20000000 %x 0201 %x", [16]byte(ours6), [6]byte(rivalMAC))
	ping := icmp6(t, rivalMAC, ours6, inet.AllNodes, 255, "80 00 0000 0001 0001")
	for _, f := range [][]byte{far, ping} {
		require.Equal(t, inet.DropSource, s.hear(f))
		s.pass(20 * second)
	}
	s.heardSay(t, "fd00::2", "")

	// A question of such a host, when we hear it, shows it too.
	s.hear(question(t, rivalMAC, ours6, addr("fd00::5:0:2")))
	s.turns()
	own := advert(t, ourMAC, ours6)
	s.hear(own) // which may be what we have just sent
	s.pass(second)
	s.heardSay(t, "fd00::2", "announce")
	require.Equal(t, Address{Addr: ours6, State: Usable, Conflicts: 1, Rival: rivalMAC},
		s.state("fd00::2"))
	s.hear(own) // which may not
	require.Equal(t, Address{Addr: ours6, State: Usable, Conflicts: 2, Rival: ourMAC},
		s.state("fd00::2"))
}

// Two stacks that both use one address unchecked do not answer each other's answers.
func TestDefenceIsNoLoop(t *testing.T) {
	a := newSeeded(t, 2, func(cfg *Config) { cfg.NoDAD, cfg.MAC[5] = true, 1 })
	b := newStation(t, func(cfg *Config) { cfg.NoDAD = true })
	link(a, b)
	a.pass(3600 * second)
	for _, s := range []*station{a, b} {
		require.NotZero(t, s.Counters().AddrDefended)
		require.LessOrEqual(t, s.Counters().Announcements, uint64(announceMax4+2))
	}
}

// A frame that is an echo of ours is no conflict, of neither family.
// req: 4862-5.4.3-1
func TestEchoesAreNoConflict(t *testing.T) {
	s := newStation(t, with6)
	for i := range 60 {
		frames := s.frames
		s.forget()
		for _, f := range frames {
			s.hear(f)
		}
		s.pass(second / 2)
		if i == 30 { // nor when they are checked again
			require.Zero(t, s.Tentatives())
			s.LinkUp(s.now)
		}
	}
	require.Zero(t, s.Counters().ARPReplies, "an echo of a probe is not answered")
	require.Zero(t, s.Counters().AddrConflicts)
	require.Zero(t, s.Tentatives())
}

// When the link comes up, addresses are probed while they are used, and announced then.
// req: 5227-2.1-3
func TestLinkUp(t *testing.T) {
	s := newStation(t, with6)
	s.pass(20 * second)
	s.forget()
	up := s.now - begin
	s.LinkUp(s.now)
	for range 30 {
		require.Zero(t, s.Tentatives())
		s.pass(second)
	}
	words, at := s.said("10.0.0.2")
	require.Equal(t, "probe probe probe announce announce", words)
	require.GreaterOrEqual(t, at[3]-up, 4*second)
	s.heardSay(t, "fd00::2", "probe announce announce announce")
	require.Zero(t, s.Counters().AddrDuplicate)
}

// A link that comes and goes is not answered each time.
func TestLinkUpsAreLimited(t *testing.T) {
	s := newStation(t, func(cfg *Config) { cfg.NoDAD = true })
	s.pass(20 * second)
	s.forget()
	for range 1000 {
		s.LinkUp(s.now)
		s.pass(second / 100)
	}
	s.pass(60 * second)
	_, at := s.said("10.0.0.2")
	require.LessOrEqual(t, len(at), 8, "ten seconds of it, two apart, and the last one")
	require.GreaterOrEqual(t, len(at), 5)
	for i := 1; i < len(at); i++ {
		require.GreaterOrEqual(t, at[i]-at[i-1], 2*second)
	}
	require.Equal(t, uint64(1000), s.Counters().LinkUps)
	require.Greater(t, s.Counters().AnnounceLimited, uint64(900))
	require.Less(t, s.Counters().AnnounceLimited, uint64(1000))
}

// An address that is found to be another's when the link comes up is given up, or, where a
// connection needs it, defended.
// req: 5227-2.1-3, 5227-2.4-1
func TestConflictAfterLinkUp(t *testing.T) {
	for _, used := range []bool{false, true} {
		s := newStation(t, nil)
		s.pass(20 * second)
		if used {
			require.NotNil(t, s.Use(s.now, &ours))
		}
		s.forget()
		s.LinkUp(s.now)
		s.until(func() bool { return len(s.words) == 1 })
		for range 3 {
			s.hear(arp(inet.ARP{
				Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: ours, TargetMAC: ourMAC, TargetIP: nobody,
			}))
			s.turns()
		}
		s.pass(30 * second)
		if used {
			s.heardSay(t, "10.0.0.2", "probe announce")
			require.Equal(t, Usable, s.state("10.0.0.2").State)
			continue
		}
		s.heardSay(t, "10.0.0.2", "probe")
		require.Equal(t, Duplicate, s.state("10.0.0.2").State)
	}
}

// A LinkUp while an address is checked for the first time begins the check again: what was asked
// before may have been lost.
func TestLinkUpWhileProbing(t *testing.T) {
	s := newStation(t, nil)
	s.until(func() bool { return len(s.words) == 2 })
	s.LinkUp(s.now)
	s.pass(20 * second)
	s.heardSay(t, "10.0.0.2", "probe probe probe probe probe announce announce")
}

// What anybody on the link can send any number of costs no memory.
func TestNoAllocations(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg); cfg.Discover = true })
	s.pass(20 * second)
	s.full = true // the answers are the test's own copies
	router := inet.MAC{2, 0, 0, 0, 0, 0x99}
	for _, f := range [][]byte{
		arp(inet.RequestARP(rivalMAC, other, ours)), arp(inet.AnnounceARP(rivalMAC, ours)),
		question(t, rivalMAC, addr("fd00::9"), ours6), advert(t, rivalMAC, ours6),
		query(t, inet.AllNodes, 1, generalQuery), routerAdvert(t, router, 1800),
	} {
		require.Zero(t, testing.AllocsPerRun(50, func() {
			s.hear(f)
			s.now++
			s.Expire(s.now)
			s.TakeNews()
		}))
	}
}
