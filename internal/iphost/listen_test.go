package iphost

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// query is a message of a querier, with the Router Alert.
func query(t *testing.T, dst inet.Addr, hopLimit uint8, text string) []byte {
	f := icmp6(t, rivalMAC, inet.LinkLocal(rivalMAC), dst, hopLimit, "%s", text)
	return frame6(rivalMAC, inet.LinkLocal(rivalMAC), dst, inet.ProtoHopByHop, hopLimit,
		append(unhex(t, "3a 00 0502 0000 0100"), f[inet.EthernetLen+inet.IPv6Len:]...))
}

const (
	generalQuery1 = "82 00 0000 0000 0000 00000000000000000000000000000000"
	generalQuery  = generalQuery1 + " 02 7d 0000"
	groupQuery    = "82 00 0000 0000 0000 ff0200000000000000000001ff000002 02 7d 0000"
)

var group2 = addr("ff02::1:ff00:2")

// with9 gives a station an address whose group is not that of its link-local one.
func with9(cfg *Config) { cfg.Addrs = prefixes("10.0.0.2/24", "fd00::9/64") }

// reports are what was reported.
func (s *station) reports() (all []string) {
	for _, w := range s.words {
		if w.what == "report" {
			all = append(all, w.about)
		}
	}
	return all
}

func twice(s string) []string { return []string{s, s} }

// The group of an address is reported before the probe for it, from :: as there is no address yet,
// after the same random delay, and again; and anew when there is an address. With another address
// in the group nothing is to be said.
// req: 4862-5.4.2-2, 4862-5.4.2-3, 4861-7.2.1-1, 3590-4-1
func TestReportComesBeforeTheProbe(t *testing.T) {
	firsts := map[int64]bool{}
	for seed := range byte(20) {
		s := newSeeded(t, seed, with9)
		s.pass(20 * second)
		for _, c := range []struct{ about, group string }{
			{"fd00::9", " to 00:9"}, {"fe80::ff:fe00:2", " to 00:2"},
		} {
			probe := slices.IndexFunc(s.words, func(w saying) bool {
				return w.what == "probe" && w.about == c.about
			})
			require.Contains(t, s.words[probe-1].about, c.group)
			require.Equal(t, s.words[probe].at, s.words[probe-1].at)
			require.LessOrEqual(t, s.words[probe].at, second, "MAX_RTR_SOLICITATION_DELAY")
			firsts[s.words[probe].at] = true
			again := 0
			for _, r := range s.reports() {
				if strings.HasPrefix(r, "fe80::ff:fe00:2 ") && strings.Contains(r, c.group) {
					again++
				}
			}
			require.Equal(t, 2, again, s.reports())
		}
		require.True(t, strings.HasPrefix(s.reports()[0], ":: to "), s.reports())
	}
	require.Greater(t, len(firsts), 30, "at random")
}

// Without duplicate address detection the groups are reported at once.
// req: 4861-7.2.1-1
func TestReportWithoutDAD(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with9(cfg); unchecked(cfg) })
	s.pass(20 * second)
	require.Equal(t, twice("fe80::ff:fe00:2 to 00:9 to 00:2"), s.reports())
	require.Zero(t, s.words[0].at)
	require.NoError(t, s.Add(s.now, prefixes("fd01::9/64")[0]))
	require.NoError(t, s.Add(s.now, prefixes("fd01::5/64")[0]))
	s.forget()
	s.pass(20 * second)
	require.Equal(t, twice("fe80::ff:fe00:2 to 00:5"), s.reports())
	require.Equal(t, uint64(4), s.Listener(s.now).Reports)
}

// A group is left with the last address in it, and with one that another host has.
// req: 3810-6.1-1
func TestGroupIsLeft(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with9(cfg); unchecked(cfg) })
	require.NoError(t, s.Add(s.now, prefixes("fd01::9/64")[0]))
	s.pass(20 * second)
	s.forget()
	s.Remove(s.now, addr("fd00::9"))
	s.pass(20 * second)
	require.Empty(t, s.frames)
	s.Remove(s.now, addr("fd01::9"))
	s.pass(20 * second)
	require.Equal(t, twice("fe80::ff:fe00:2 not 00:9"), s.reports())

	s = newStation(t, with9)
	s.until(func() bool { words, _ := s.said("fd00::9"); return words == "probe" })
	s.hear(advert(t, rivalMAC, addr("fd00::9")))
	s.forget()
	s.pass(20 * second)
	require.Equal(t, Duplicate, s.state("fd00::9").State)
	joined := strings.Join(s.reports(), "\n")
	require.Contains(t, joined, " not 00:9")
	require.NotContains(t, joined, " to 00:9")
}

// When the device is connected anew, the switch there learns of the groups.
func TestReportAfterLinkUp(t *testing.T) {
	for _, dad := range []bool{false, true} {
		s := newStation(t, func(cfg *Config) { with9(cfg); cfg.NoDAD = !dad })
		s.pass(20 * second)
		s.forget()
		s.LinkUp(s.now)
		s.pass(20 * second)
		text := strings.Join(s.reports(), "\n") + "\n"
		for _, group := range []string{" to 00:9", " to 00:2"} {
			require.Equal(t, 2, strings.Count(text, group), text)
		}
		require.NotContains(t, text, ":: to")
	}
}

// Queries are answered; what is no Query of the link is not.
// req: 3810-6.2-1, 3810-6.2-2
func TestQueriesAreAnswered(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with9(cfg); unchecked(cfg) })
	s.pass(20 * second)
	ask := func(f []byte, want ...string) inet.Drop {
		s.forget()
		drop := s.hear(f)
		s.pass(second)
		require.Equal(t, want, s.reports())
		return drop
	}
	require.Equal(t, inet.DropNone,
		ask(query(t, inet.AllNodes, 1, generalQuery), "fe80::ff:fe00:2 is 00:9 is 00:2"))
	require.Equal(t, inet.DropNone, ask(query(t, group2, 1, groupQuery), "fe80::ff:fe00:2 is 00:2"))

	noAlert := query(t, inet.AllNodes, 1, generalQuery)
	copy(noAlert[54:], unhex(t, "3a 00 0104 00000000"))
	bare := icmp6(t, rivalMAC, inet.LinkLocal(rivalMAC), inet.AllNodes, 1, generalQuery)
	for _, f := range [][]byte{query(t, inet.AllNodes, 2, generalQuery), noAlert, bare} {
		require.Equal(t, inet.DropBadMLD, ask(f))
	}
	require.Equal(t, uint64(2), s.Listener(s.now).Queries)
}

// A router that speaks MLDv1 is answered in it, to the group itself.
// req: 3810-8.2.1-1, 2710-4-2
func TestQueryOfMLDv1(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with9(cfg); unchecked(cfg) })
	s.pass(20 * second)
	s.forget()
	s.hear(query(t, inet.AllNodes, 1, generalQuery1))
	s.pass(second)
	require.Equal(t, []string{"fe80::ff:fe00:2 v1 131 00:9", "fe80::ff:fe00:2 v1 131 00:2"},
		s.reports())
	require.Equal(t, unhex(t, "3333ff000009 020000000002 86dd"), s.frames[0][:14])
	require.Equal(t, addr("ff02::1:ff00:9"), inet.Addr(s.frames[0][14+24:][:16]))
	require.True(t, s.Listener(s.now).Older)
	s.pass(260 * second)
	require.False(t, s.Listener(s.now).Older)
}

// Without room a Report waits, and is not tried all the time.
func TestReportWaitsForRoom(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with9(cfg); unchecked(cfg) })
	s.full = true
	tries := 0
	s.until(func() bool { tries++; return s.now >= begin+second }, begin+second+1)
	require.Less(t, tries, 250)
	s.full = false
	s.pass(20 * second)
	require.Equal(t, twice("fe80::ff:fe00:2 to 00:9 to 00:2"), s.reports())
}

// query4 is an IGMP message of a querier.
func query4(t *testing.T, dst inet.Addr, text string) []byte {
	m := unhex(t, text)
	binary.BigEndian.PutUint16(m[2:], inet.Checksum(m, 0))
	f := make([]byte, inet.EthernetLen+inet.IGMPHeaderLen, 100)
	eth := inet.Ethernet{Dst: dst.GroupMAC(), Src: rivalMAC, Type: inet.EtherTypeIPv4}
	eth.Put(f)
	inet.PutIGMPHeader(f[inet.EthernetLen:], other, dst, len(m))
	return append(f, m...)
}

// What the caller joins is reported, of IPv4 by IGMP from our address, and anew after the link came
// up; Queries are answered for it, in the querier's version; what is left is said, and at the end
// at once. Groups that all nodes have, or that stay in a host, are not reported. There are
// GroupsMax.
func TestGroupsOfTheCaller(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
	s.pass(20 * second)
	s.forget()
	four, six := addr("239.1.2.3"), addr("ff05::77")
	silent := []inet.Addr{inet.AllNodes, inet.AllNodes4, addr("ff01::1"), addr("ff00::1")}
	for _, g := range append([]inet.Addr{four, six}, silent...) {
		require.False(t, s.Joined(&g))
		require.True(t, s.Join(s.now, g))
		require.True(t, s.Joined(&g))
	}
	heard := func(want ...string) {
		t.Helper()
		s.pass(20 * second)
		require.ElementsMatch(t, want, s.reports())
		s.forget()
	}
	to4, to6 := "10.0.0.2 to 239.1.2.3", "fe80::ff:fe00:2 to ff05::77"
	heard(to4, to4, to6, to6)
	s.LinkUp(s.now)
	again := "fe80::ff:fe00:2 to 00:2 to ff05::77"
	heard(to4, to4, again, again)

	require.Equal(t, inet.DropNone,
		s.hear(query4(t, inet.AllNodes4, "11 0a 0000 00000000 02 7d 0000")))
	heard("10.0.0.2 is 239.1.2.3")
	require.Equal(t, inet.DropBadIGMP,
		s.hear(query4(t, addr("239.1.2.4"), "11 0a 0000 00000000 02 7d 0000")))
	heard()
	require.Equal(t, inet.DropNone, s.hear(query4(t, four, "11 0a 0000 ef010203")))
	heard("10.0.0.2 v2 16 239.1.2.3")
	require.True(t, s.Listener(s.now).Older)
	s.pass(260 * second)
	s.forget()

	s.Leave(s.now, six)
	s.Leave(s.now, six)
	require.False(t, s.Joined(&six))
	heard("fe80::ff:fe00:2 not ff05::77", "fe80::ff:fe00:2 not ff05::77")
	s.LeaveAll(s.now)
	require.Equal(t, []string{"10.0.0.2 not 239.1.2.3"}, s.reports())
	s.pass(20 * second)

	for i := range GroupsMax {
		require.True(t, s.Join(s.now, inet.AddrFrom4([4]byte{239, 0, 0, byte(i)})))
	}
	require.False(t, s.Join(s.now, four))
	s.forget()
	s.LinkUp(s.now)
	s.pass(20 * second)
	require.Len(t, s.reports(), 2*2, "64 groups, and our own of IPv6")
}
