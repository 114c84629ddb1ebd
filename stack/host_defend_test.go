package stack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
)

// A station that claims an address in use is answered with one announcement in ten seconds and not
// believed; connections go on.
// req: 5227-2.4-1, 5227-2.4-2, 5227-2.4-3
func TestDefence(t *testing.T) {
	l := newLab(t, sixes)
	u, v := l.open()
	for addr, claim := range map[string]func(){
		"10.0.0.2": func() {
			l.a.nic.inject(arpFrame(inet.RequestARP(rivalMAC, theirs, inet.AddrFrom(l.a.addr))))
		},
		"fd00::2": func() { // as such a host would announce itself
			m := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(), [6]byte(rivalMAC)))
			l.a.nic.inject(
				icmp6(rivalMAC, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), 255, m))
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
		require.Equal(t, AddrStatus{netip.MustParseAddr(addr), AddrUsable, 35, rivalMAC},
			l.b.status(addr))
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
	advert := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(),
		[6]byte(rivalMAC)))
	frame := func(mac inet.MAC, hopLimit uint8, message []byte) []byte {
		return icmp6(mac, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), hopLimit, message)
	}
	for _, f := range [][]byte{frame(rivalMAC, 64, advert),
		frame(rivalMAC, 255, []byte{inet.ICMP6Echo, 7: 0})} {
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
	require.Equal(t, AddrStatus{Addr: addr6(1), State: AddrUsable, Conflicts: 1, Rival: rivalMAC},
		l.b.status("fd00::2"))
	l.a.nic.inject(frame(l.b.mac, 255, advert)) // which may not
	l.turns()
	require.Equal(t, AddrStatus{Addr: addr6(1), State: AddrUsable, Conflicts: 2, Rival: l.b.mac},
		l.b.status("fd00::2"))
	l.b.nic.onSend = nil
	l.stop()
}

// Two stacks that both use one address unchecked do not answer each other's answers.
func TestDefenceIsNoLoop(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.NoAnnounce, cfg.Addr = false, netip.MustParsePrefix("10.0.0.5/24")
	})
	l.pass(3600 * second)
	for _, h := range l.hosts {
		n := h.counters()
		require.NotZero(t, n.AddrDefended)
		require.LessOrEqual(t, n.Announcements, uint64(announceMax4+2))
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
