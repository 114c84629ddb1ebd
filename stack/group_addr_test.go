package stack

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// claimingGroup is a Group of three that checks and announces its address, which is in use.
func claimingGroup(t *testing.T) *lab {
	l := groupLabTuned(t, 3, func(cfg *Config) { cfg.NoDAD, cfg.NoAnnounce = false, false })
	l.pass(20 * second)
	for _, h := range l.hosts[1:] {
		l.listen(h, 7, 16)
	}
	return l
}

func (l *lab) groupLinkUp() {
	for _, h := range l.hosts[1:] {
		require.NoError(l.t, h.LinkUp())
	}
	l.pass(10 * ms) // all check it again, for two seconds at least
}

// groupReplies is how many of n ARP requests, which come to any member, are answered.
func (l *lab) groupReplies(n int) (replies int) {
	all := l.listenTo(l.hosts[1:]...)
	for range n {
		l.a.nic.inject(arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), theirs)))
		l.pass(second)
	}
	return strings.Count(all[l.a.addr.String()], "reply")
}

// An address that is claimed when the link comes up is kept by all members of a Group where one of
// them has a connection; whichever it is.
// req: 5227-2.4-1
func TestGroupKeepsWhatAMemberUses(t *testing.T) {
	owners := map[string]bool{}
	for range 12 {
		l := claimingGroup(t)
		l.hosts[0].ports.next = uint32(len(owners)) // another owner's, sooner or later
		var u *peer
		for u == nil || owners[l.accepted[len(l.accepted)-1].conn.p.cfg.Name] && len(l.accepted) < 40 {
			if u != nil { // not this one
				u.conn.Abort()
				l.until("closed", func() bool {
					return u.closed == 1 && l.accepted[len(l.accepted)-1].closed == 1
				})
			}
			had := len(l.accepted)
			u = l.dial(l.a, l.b, 7)
			l.until("open", func() bool { return u.opened && len(l.accepted) == had+1 })
		}
		v := l.accepted[len(l.accepted)-1]
		owners[v.conn.p.cfg.Name] = true
		l.groupLinkUp()
		for range 3 {
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
			l.turns()
		}
		l.pass(20 * second)
		for _, h := range l.hosts[1:] {
			require.Equal(t, AddrUsable, h.status("10.0.0.2").State, h.cfg.Name)
		}
		require.Equal(t, 30, l.groupReplies(30))
		u.send(20_000)
		l.until("there", func() bool { return v.edge == 20_000 })
		l.stop()
		if len(owners) == 3 {
			return
		}
	}
	t.Fatalf("connections of %v alone", owners)
}

// An address that one member gives up all give up, also those that have not heard of the conflict;
// from that moment no connection begins.
func TestGroupGivesUpTogether(t *testing.T) {
	l := claimingGroup(t)
	g := newGhost(l, 1000)
	for _, h := range l.hosts[1:] { // each has half-open connections
		for ; h.syns.n == 0; g.port++ {
			g.send(tcp.SYN, 0, 0, noOptions)
			l.turns()
		}
	}
	l.groupLinkUp()
	one := l.hosts[2].Poller
	_ = one.host.ARP(l.now, arpFrame(inet.AnnounceARP(rivalMAC, theirs))[inet.EthernetLen:])
	last := l.hosts[3]
	require.Equal(t, AddrUsable, last.status("10.0.0.2").State)
	require.LessOrEqual(t, last.Deadline(), l.now, "it does not sleep")
	_, err := last.Dial(addrPort(l.a, 7), newPeer(t, 1))
	var taken *AddrError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, AddrError{Addr: l.b.addr, MAC: rivalMAC}, *taken)
	l.turns()
	for _, h := range l.hosts[1:] {
		require.Equal(t, AddrDuplicate, h.status("10.0.0.2").State)
		require.Equal(t, rivalMAC, h.status("10.0.0.2").Rival)
		require.Zero(t, h.syns.n)
	}
	require.Zero(t, l.groupReplies(30))
}

// Connections that end, or are in TIME-WAIT, do not keep an address; those that nobody answers do,
// until they end.
func TestWhatKeepsAnAddress(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	home := v.conn.home
	count := func() int64 { return home.Users() }
	require.Equal(t, int64(1), count())
	v.closeSend()
	l.until("half closed", func() bool { return u.peerFin })
	u.closeSend()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
	require.Equal(t, phaseLingering, v.conn.phase)
	require.Zero(t, count())
	w := l.dialAt(l.b, netip.MustParseAddrPort("10.0.0.99:7"))
	require.Equal(t, int64(1), count())
	l.until("nobody is there", func() bool { return w.closed == 1 })
	require.Zero(t, count())
	for range l.b.cfg.ConnsMax + 1 {
		_, _ = l.b.Dial(netip.MustParseAddrPort("10.0.0.99:7"), newPeer(t, 1))
	}
	require.Equal(t, int64(l.b.cfg.ConnsMax), count(), "what found no slot does not count")
	l.stop()
	require.Zero(t, count())
}
