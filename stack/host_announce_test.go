package stack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// announcing has host b announce its addresses and use them at once.
func announcing(i int, cfg *Config) { cfg.NoAnnounce = i == 0 }

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
	for addr, interval := range map[string]int64{"10.0.0.2": 2 * second, "10.0.0.4": 2 * second,
		"fd00::3": second, inet.LinkLocal(l.b.mac).String(): second} {
		_, at := of(*all, addr)
		for i := 1; i < len(at); i++ {
			require.GreaterOrEqual(t, at[i]-at[i-1], interval, addr)
			require.Less(t, at[i]-at[i-1], interval+second/2, addr)
		}
		require.Less(t, at[0], second/2)
	}
	i := slices.IndexFunc(*all, func(s said) bool { return s.addr == "fd00::3" })
	eth, ip, m := split6(t, (*all)[i].frame)
	require.Equal(t, inet.Ethernet{Dst: inet.AllNodes.GroupMAC(), Src: l.b.mac,
		Type: inet.EtherTypeIPv6}, eth)
	require.Equal(t, []any{"fd00::3", inet.AllNodes, uint8(255)},
		[]any{ip.Src.String(), ip.Dst, ip.HopLimit})
	require.Equal(
		t,
		unhex(t, fmt.Sprintf("88 00 %x 20000000 %x 0201 %x", m[2:4], [16]byte(ip.Src), [6]byte(l.b.mac))),
		m)
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
	l.a.nic.inject(icmp6(router, inet.AllNodes.GroupMAC(), inet.LinkLocal(router).Netip(),
		inet.AllNodes.Netip(), 255, m))
	l.pass(100 * second)
	_, at := of(*all, "fd00::2")
	require.Len(t, at, announceMax6)
	require.GreaterOrEqual(t, at[1]-at[0], 5*second)
	require.GreaterOrEqual(t, at[2]-at[1], 5*second)
	l.b.nic.onSend = nil
	l.stop()
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
