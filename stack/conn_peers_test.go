package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	l.dials(30)
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
