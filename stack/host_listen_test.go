package stack

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// heard has the MLDv2 Reports and probes of a host in order, as "report ADDRESS to GROUP..." and
// "probe ADDRESS", with their times.
type heard struct {
	words []string
	at    []int64
}

// hearReports collects what h says from now on, and checks every Report.
func (l *lab) hearReports(h *host) *heard {
	all := &heard{}
	say := func(s string) { all.words, all.at = append(all.words, s), append(all.at, l.now) }
	h.nic.onReport = func(f []byte) {
		eth, b, drop := inet.ParseEthernet(f)
		require.Equal(l.t, inet.DropNone, drop)
		require.Equal(l.t, h.mac, eth.Src)
		ip, b, drop := inet.ParseIPv6(b)
		require.Equal(l.t, inet.DropNone, drop)
		require.EqualValues(l.t, 1, ip.HopLimit)
		require.Equal(l.t, inet.AllMLDRouters, ip.Dst)
		c, drop := inet.WalkIPv6(b, ip.NextHeader, inet.IPv6Len, false)
		require.Equal(l.t, inet.DropNone, drop)
		require.True(l.t, c.Alert)
		b = b[c.Off:]
		pseudo := inet.PseudoSum(ip.Src, ip.Dst, inet.ProtoICMPv6, len(b))
		require.Zero(l.t, inet.Checksum(b, pseudo))
		s := "report " + ip.Src.String()
		for i := range int(binary.BigEndian.Uint16(b[6:8])) {
			r := b[8+20*i:]
			s += map[byte]string{2: " is ", 3: " not ", 4: " to "}[r[0]]
			s += strings.TrimPrefix(inet.Addr(r[4:20]).String(), "ff02::1:ff")
		}
		say(s)
	}
	h.nic.onSend = func(f []byte) {
		if s, ok := aboutAddrs(f); ok && s.what == "probe" && isIPv6(f, inet.ProtoICMPv6) {
			say("probe " + s.addr)
		}
	}
	return all
}

// mldFrame is a message with the Router Alert, from a querier.
func mldFrame(t *testing.T, dst inet.Addr, hopLimit uint8, text string) []byte {
	m := unhex(t, text)
	src := inet.LinkLocal(rivalMAC)
	sum := inet.Checksum(m, inet.PseudoSum(src, dst, inet.ProtoICMPv6, len(m)))
	binary.BigEndian.PutUint16(m[2:], sum)
	f := make([]byte, inet.EthernetLen+inet.IPv6Len)
	eth := inet.Ethernet{Dst: dst.GroupMAC(), Src: rivalMAC, Type: inet.EtherTypeIPv6}
	eth.Put(f)
	ip := inet.IPv6{PayloadLen: 8 + len(m), HopLimit: hopLimit, Src: src, Dst: dst}
	ip.Put(f[inet.EthernetLen:])
	f = append(f, unhex(t, "3a 00 0502 0000 0100")...)
	return append(f, m...)
}

const (
	generalQuery  = "82 00 0000 0000 0000 00000000000000000000000000000000 02 7d 0000"
	generalQuery1 = "82 00 0000 0000 0000 00000000000000000000000000000000"
	groupQuery    = "82 00 0000 0000 0000 ff0200000000000000000001ff000002 02 7d 0000"
)

var group2 = addr16("ff02::1:ff00:2")

func addr16(s string) inet.Addr { return inet.AddrFrom(netip.MustParseAddr(s)) }

// with6 gives host b an address whose group is not that of its link-local one.
func with6(i int, cfg *Config) {
	if i == 1 {
		cfg.Addrs = []netip.Prefix{netip.MustParsePrefix("fd00::9/64")}
	}
}

// The group of an address is reported before the probe for it, from :: as there is no address yet,
// after the same random delay, and again; and anew when there is an address. With another address
// in the group nothing is to be said.
// req: 4862-5.4.2-2, 4862-5.4.2-3, 4861-7.2.1-1, 3590-4-1
func TestReportComesBeforeTheProbe(t *testing.T) {
	firsts := map[int64]bool{}
	for seed := range byte(20) {
		l := newLab(t, func(i int, cfg *Config) {
			with6(i, cfg)
			claiming(i, cfg)
			cfg.Secret = [16]byte{seed, byte(i)}
		})
		all := l.hearReports(l.b)
		begin := l.now
		l.pass(20 * second)
		require.Equal(t, "fe80::ff:fe00:2", l.b.linkLocal().String())
		for _, c := range []struct {
			addr, group string
		}{{"fd00::9", "00:9"}, {"fe80::ff:fe00:2", "00:2"}} {
			probe := slices.Index(all.words, "probe "+c.addr)
			require.Contains(t, all.words[probe-1], " to "+c.group)
			require.Equal(t, all.at[probe], all.at[probe-1])
			require.LessOrEqual(t, all.at[probe]-begin, second, "MAX_RTR_SOLICITATION_DELAY")
			firsts[all.at[probe]-begin] = true
			again := 0
			for _, s := range all.words {
				if strings.HasPrefix(s, "report fe80::ff:fe00:2 ") && strings.Contains(s, " to "+c.group) {
					again++
				}
			}
			require.Equal(t, 2, again, all.words)
		}
		require.True(t, strings.HasPrefix(all.words[0], "report :: to "), all.words)
		l.b.nic.onSend, l.b.nic.onReport = nil, nil
		l.stop()
	}
	require.Greater(t, len(firsts), 30, "at random")
}

// Without duplicate address detection the groups are reported at once.
// req: 4861-7.2.1-1
func TestReportWithoutDAD(t *testing.T) {
	l := newLab(t, with6)
	all := l.hearReports(l.b)
	l.pass(20 * second)
	require.Equal(t, slices.Repeat([]string{"report fe80::ff:fe00:2 to 00:9 to 00:2"}, 2), all.words)
	require.Equal(t, l.now-20*second, all.at[0])
	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("fd01::9/64")))
	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("fd01::5/64")))
	all.words = nil
	l.pass(20 * second)
	require.Equal(t, slices.Repeat([]string{"report fe80::ff:fe00:2 to 00:5"}, 2), all.words)
	require.Equal(t, uint64(4), l.b.counters().Listener.Reports)
	l.stop()
}

// A group is left with the last address in it, and with one that another host has.
// req: 3810-6.1-1
func TestGroupIsLeft(t *testing.T) {
	l := newLab(t, with6)
	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("fd01::9/64")))
	l.pass(20 * second)
	all := l.hearReports(l.b)
	require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr("fd00::9")))
	l.pass(20 * second)
	require.Empty(t, all.words)
	require.NoError(t, l.b.RemoveAddr(netip.MustParseAddr("fd01::9")))
	l.pass(20 * second)
	require.Equal(t, slices.Repeat([]string{"report fe80::ff:fe00:2 not 00:9"}, 2), all.words)
	l.stop()

	l = newLab(t, func(i int, cfg *Config) { with6(i, cfg); claiming(i, cfg) })
	all = l.hearReports(l.b)
	l.until("asked", func() bool { return slices.Contains(all.words, "probe fd00::9") })
	na := unhex(t, "88 00 0000 20000000 fd000000000000000000000000000009 0201 020000000077")
	l.a.nic.inject(icmp6(rivalMAC, inet.AllNodes.GroupMAC(), netip.MustParseAddr("fd00::9"),
		inet.AllNodes.Netip(), 255, na))
	all.words = nil
	l.pass(20 * second)
	require.Equal(t, AddrDuplicate, l.b.status("fd00::9").State)
	joined := strings.Join(all.words, "\n")
	require.Contains(t, joined, " not 00:9")
	require.NotContains(t, joined, " to 00:9")
	l.stop()
}

// When the device is connected anew, the switch there learns of the groups.
func TestReportAfterLinkUp(t *testing.T) {
	for _, dad := range []bool{false, true} {
		l := newLab(t, func(i int, cfg *Config) { with6(i, cfg); cfg.NoDAD = !dad })
		l.pass(20 * second)
		all := l.hearReports(l.b)
		require.NoError(t, l.b.LinkUp())
		l.pass(20 * second)
		text := strings.Join(all.words, "\n") + "\n"
		for _, group := range []string{" to 00:9", " to 00:2"} {
			require.Equal(t, 2, strings.Count(text, group), text)
		}
		require.NotContains(t, text, "report ::")
		l.stop()
	}
}

// Queries are answered; what is no Query of the link is not, and counted.
// req: 3810-6.2-1, 3810-6.2-2
func TestQueriesAreAnswered(t *testing.T) {
	l := newLab(t, with6)
	l.pass(20 * second)
	all := l.hearReports(l.b)
	ask := func(f []byte) string {
		all.words = nil
		l.a.nic.inject(f)
		l.pass(second)
		return strings.Join(all.words, "\n")
	}
	require.Equal(t, "report fe80::ff:fe00:2 is 00:9 is 00:2",
		ask(mldFrame(t, inet.AllNodes, 1, generalQuery)))
	require.Equal(t, "report fe80::ff:fe00:2 is 00:2", ask(mldFrame(t, group2, 1, groupQuery)))
	require.Equal(t, uint64(2), l.b.counters().Listener.Queries)
	require.Zero(t, l.b.counters().Inet[inet.DropBadMLD])

	noAlert := mldFrame(t, inet.AllNodes, 1, generalQuery)
	copy(noAlert[54:], unhex(t, "3a 00 0104 00000000"))
	bare := icmp6(rivalMAC, inet.AllNodes.GroupMAC(), inet.LinkLocal(rivalMAC).Netip(),
		inet.AllNodes.Netip(), 1, unhex(t, generalQuery))
	fragments := fragments6(mldFrame(t, inet.AllNodes, 1, generalQuery), 16)
	for i, f := range [][]byte{mldFrame(t, inet.AllNodes, 2, generalQuery), noAlert, bare} {
		require.Empty(t, ask(f))
		require.Equal(t, uint64(i+1), l.b.counters().Inet[inet.DropBadMLD])
	}
	for _, f := range fragments {
		require.Empty(t, ask(f))
	}
	require.Equal(t, uint64(2), l.b.counters().Listener.Queries)
	l.stop()
}

// A router that speaks MLDv1 is answered in it, to the group itself.
// req: 3810-8.2.1-1, 2710-4-2
func TestQueryOfMLDv1(t *testing.T) {
	l := newLab(t, with6)
	l.pass(20 * second)
	var got [][]byte
	l.b.nic.onSend = func(f []byte) { got = append(got, slices.Clone(f)) }
	l.a.nic.inject(mldFrame(t, inet.AllNodes, 1, generalQuery1))
	l.pass(second)
	require.Len(t, got, 2)
	require.Equal(t, unhex(t, "3333ff000009 020000000002 86dd"), got[0][:14])
	require.Equal(t, unhex(t, "83"), got[0][62:63])
	require.Equal(t, addr16("ff02::1:ff00:9"), inet.Addr(got[0][70:86]))
	require.Equal(t, group2, inet.Addr(got[1][70:86]))
	require.True(t, l.b.counters().Listener.Older)
	l.pass(260 * second)
	require.False(t, l.b.counters().Listener.Older)
	l.b.nic.onSend = nil
	l.stop()
}

// Without a Buf a Report waits, and the Poller does not spin for it.
func TestReportWaitsForABuf(t *testing.T) {
	l := newLab(t, with6)
	all := l.hearReports(l.b)
	var taken []mem.Buf
	for b := l.b.pool.Alloc(); b != mem.NoBuf; b = l.b.pool.Alloc() {
		taken = append(taken, b)
	}
	turns := l.b.counters().Turns
	l.pass(second)
	require.Less(t, l.b.counters().Turns-turns, uint64(250))
	require.Empty(t, all.words)
	l.b.pool.FreeN(taken)
	l.pass(20 * second)
	require.Equal(t, slices.Repeat([]string{"report fe80::ff:fe00:2 to 00:9 to 00:2"}, 2), all.words)
	l.stop()
}

// Of a Group one member reports, whichever a Query comes to.
func TestGroupReportsOnce(t *testing.T) {
	l := groupLabTuned(t, 3, func(cfg *Config) {
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(1), 64)}
	})
	var all []*heard
	for _, h := range l.hosts[1:] {
		all = append(all, l.hearReports(h))
	}
	l.pass(20 * second)
	require.Len(t, all[0].words, 2)
	for range 5 { // which each come to any of them
		l.a.nic.inject(mldFrame(t, inet.AllNodes, 1, generalQuery))
		l.pass(second)
	}
	require.Len(t, all[0].words, 7)
	require.Empty(t, all[1].words)
	require.Empty(t, all[2].words)
	for _, h := range l.hosts[1:] {
		h.nic.onSend, h.nic.onReport = nil, nil
	}
	l.stop()
}
