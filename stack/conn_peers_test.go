package stack

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd/wire"
)

// peerGroup is a Group of three that takes two connections of one address; with silent they give
// way until they have said something.
func peerGroup(t *testing.T, silent bool) *lab {
	l := groupLabTuned(t, 3, func(cfg *Config) { cfg.PeerMax = 2 })
	for _, h := range l.hosts[1:] {
		if !silent {
			l.listen(h, 7, 16)
			continue
		}
		b := l.b
		l.b = h
		l.listenSilent(16)
		l.b = b
	}
	return l
}

// PeerMax is one limit for all members of a Group, not one for each.
func TestGroupPeerMax(t *testing.T) {
	l := peerGroup(t, false)
	var dialled []*peer
	for range 30 {
		dialled = append(dialled, l.dial(l.a, l.b, 7))
	}
	l.pass(20 * second)
	require.Len(t, l.accepted, 2)
	l.accepted[0].conn.Abort()
	l.until("the next", func() bool { return len(l.accepted) == 3 })
	l.pass(20 * second)
	require.Len(t, l.accepted, 3)
	drops := uint64(0)
	for _, h := range l.hosts[1:] {
		drops += h.counters().Own[DropPeerMax]
	}
	require.NotZero(t, drops)
	require.Len(t, dialled, 30)
	l.stop()
	noPeers(t, l.b.peers.counts)
}

// A newcomer of an address at the limit gets the place of a silent connection, whichever member has
// it, and of one that has spoken never. A SYN alone takes no connection's place.
func TestSilentGivesWayWithinAGroup(t *testing.T) {
	l := peerGroup(t, true)
	elsewhere, gone := 0, map[*peer]bool{}
	for i := range 20 {
		u := l.dial(l.a, l.b, 7)
		l.until("open", func() bool { return len(l.accepted) == i+1 })
		left := 0
		for _, v := range l.accepted {
			if v.closed == 0 {
				left++
				continue
			}
			require.ErrorIs(t, v.err, ErrGaveWay)
			if !gone[v] && v.conn.p != l.accepted[i].conn.p {
				elsewhere++
			}
			gone[v] = true
		}
		require.LessOrEqual(t, left, 2)
		require.Zero(t, u.closed)
	}
	require.NotZero(t, elsewhere)
	var open []*peer
	for _, v := range l.accepted {
		if v.closed == 0 {
			open = append(open, v)
			v.conn.SetSilent(false)
		}
	}
	require.Len(t, open, 2)
	for range 10 {
		l.dial(l.a, l.b, 7)
	}
	l.pass(60 * second)
	require.Len(t, l.accepted, 20)
	require.Zero(t, open[0].closed+open[1].closed)
	l.stop()
	noPeers(t, l.b.peers.counts)
}

// The members of a Group have one limit.
func TestGroupPeerMaxConfig(t *testing.T) {
	g, err := NewGroup(3)
	require.NoError(t, err)
	link, err := wire.New(wire.Config{})
	require.NoError(t, err)
	pool := newPool(t, 64)
	q, err := link.Port(0).Open(0, pool)
	require.NoError(t, err)
	cfg := Config{
		Name: "m", Queue: q, Pool: pool, Caps: link.Port(0).Caps(), MAC: link.Port(0).MAC(),
		Addr:     netip.MustParsePrefix("10.0.0.1/24"),
		ConnsMax: 4, PeerMax: 2, Core: -1, Group: g,
	}
	_, err = New(cfg)
	require.NoError(t, err)
	for _, other := range [][2]int{{0, 4}, {3, 4}, {2, 8}} {
		cfg.Member, cfg.PeerMax, cfg.ConnsMax = 1, other[0], other[1]
		_, err = New(cfg)
		require.ErrorContains(t, err, "it is one limit for all")
	}
}
