package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// startup is an Upper that waits for its peer's first octets.
type startup struct{ *peer }

func (u startup) Established() {
	u.conn.SetSilent(true)
	u.conn.SetSilent(true) // changes nothing
	u.peer.Established()
}

func (u startup) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (int, Verdict) {
	u.conn.SetSilent(false)
	return u.peer.Arrive(off, bufs, data)
}

// listenSilent accepts on b, port 7; connections are silent until they have said something.
func (l *lab) listenSilent(backlog int) {
	require.NoError(l.t, l.b.Listen(7, backlog, func(c *Conn) Upper {
		u := newPeer(l.t, 2)
		u.conn = c
		l.accepted = append(l.accepted, u)
		return startup{u}
	}))
}

// openSilent has a dial n connections one after another, and returns both ends of them.
func (l *lab) openSilent(n int) (dialled, accepted []*peer) {
	l.t.Helper()
	had := len(l.accepted)
	for range n {
		u := l.dial(l.a, l.b, 7)
		l.until("open", func() bool { return u.opened && len(l.accepted) == had+len(dialled)+1 })
		dialled = append(dialled, u)
	}
	return dialled, l.accepted[had:]
}

// Connections whose peers say nothing fill the table: a new one gets in at once, and the oldest
// of them is reset. One that has spoken stays.
//
// req: 5042-6.4.1-1
func TestSilentGivesWay(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		if i == 1 {
			cfg.ConnsMax = 4
		}
	})
	l.listenSilent(8)
	dialled, accepted := l.openSilent(4)
	dialled[1].send(10)
	l.until("octets", func() bool { return accepted[1].edge == 10 })
	begin := l.now
	for i, oldest := range []int{0, 2, 3} {
		w := l.dial(l.a, l.b, 7)
		l.turns()
		require.True(t, w.opened)
		require.Len(t, l.accepted, 5+i)
		require.ErrorIs(t, accepted[oldest].err, ErrGaveWay)
		require.ErrorIs(t, dialled[oldest].err, ErrReset, "its peer is told")
		w.send(1)
		l.turns()
		require.Equal(t, uint64(1), l.accepted[4+i].edge)
	}
	require.Less(t, l.now-begin, 10*ms)
	require.Zero(t, accepted[1].closed)
	n := l.b.counters()
	require.Equal(t, uint64(3), n.GaveWay)
	require.Zero(t, n.Own[DropConnMax])

	l.dial(l.a, l.b, 7) // all have spoken
	l.turns()
	require.Len(t, l.accepted, 7)
	require.NotZero(t, l.b.counters().Own[DropConnMax])
	l.stop()
	require.Zero(t, l.b.peers.silent.n)
}

// noPeers checks that no peer is counted.
func noPeers(t *testing.T, counts []peerCount) {
	t.Helper()
	require.NotEmpty(t, counts)
	for i := range counts {
		require.Zero(t, counts[i].conns.Load())
		require.Zero(t, counts[i].silent.Load())
	}
}

// An address at its limit loses its own silent connections to its next, and nobody else's; also
// where the handshake ends with a cookie.
func TestSilentGivesWayWithinPeerMax(t *testing.T) {
	for _, cookies := range []bool{false, true} {
		l := newLab(t, func(i int, cfg *Config) { cfg.PeerMax, cfg.ConnsMax = 2, 8 })
		l.listenSilent(4)
		if cookies {
			noise(l, 4)
		}
		_, other := l.openSilent(2) // the oldest, of another address
		open := func(port uint16, payload ...byte) *peer {
			had := len(l.accepted)
			g := newGhost(l, port)
			got := g.send(tcp.SYN, 0, 0, noOptions)
			require.NotEmpty(t, got)
			g.send(tcp.ACK, 1, got[0].Seq+1, noOptions, payload...)
			require.Len(t, l.accepted, had+1)
			return l.accepted[had]
		}
		first, second := open(1000), open(1001)
		third := open(1002)
		require.ErrorIs(t, first.err, ErrGaveWay)
		fourth := open(1003)
		require.ErrorIs(t, second.err, ErrGaveWay)
		for _, u := range append(other, third, fourth) {
			require.Zero(t, u.closed)
		}
		require.Equal(t, uint64(2), l.b.counters().GaveWay)
		require.Zero(t, l.b.counters().Own[DropPeerMax])
		l.stop()
		noPeers(t, l.b.peers.counts)
	}
}

// The search for a silent connection of the address ends; what is not found then gives no way.
func TestSilentLooksMax(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 2 * silentLooks })
	l.listenSilent(4)
	l.b.peers.max, l.b.peers.counts = silentLooks+10, make([]peerCount, 4*silentLooks)
	l.b.peers.k0, l.b.peers.k1 = 3, 5
	_, accepted := l.openSilent(silentLooks)
	a := accepted[0].conn.tcp.ID().Remote
	require.Equal(t, accepted[0].conn.index, l.b.peers.silentOf(&a))
	for _, u := range accepted[:silentLooks-1] {
		u.conn.marks &^= markPeer // as if they were others'
	}
	require.Equal(t, accepted[silentLooks-1].conn.index, l.b.peers.silentOf(&a))
	accepted[silentLooks-1].conn.marks &^= markPeer
	l.openSilent(1)
	require.Equal(t, noConn, l.b.peers.silentOf(&a))
}

// With no Buf for the RST, and no room for it, the connection ends all the same, and that is
// counted.
func TestSilentGivesWayUnsaid(t *testing.T) {
	for _, why := range []Drop{DropNoBuf, DropTxFull} {
		l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 4 })
		l.listenSilent(4)
		_, accepted := l.openSilent(1)
		switch why {
		case DropNoBuf:
			if l.b.tx.spare != mem.NoBuf {
				l.b.pool.Free(l.b.tx.takeSpare())
			}
			for b := l.b.pool.Alloc(); b != mem.NoBuf; b = l.b.pool.Alloc() {
				defer l.b.pool.Free(b)
			}
		case DropTxFull:
			l.b.tx.connMax = 0
		}
		l.b.giveWay(accepted[0].conn)
		require.ErrorIs(t, accepted[0].err, ErrGaveWay)
		require.Equal(t, uint64(1), l.b.counters().Own[why])
		require.Zero(t, l.b.counters().Conns)
	}
}

// A connection that waits for memory to send with stands in that list, and does not give way.
func TestWaitingForBufsIsNotSilent(t *testing.T) {
	l := newLab(t, nil)
	l.listenSilent(4)
	_, accepted := l.openSilent(1)
	c := accepted[0].conn
	require.Equal(t, 1, l.b.peers.silent.n)
	l.b.settle(c, true)
	require.Zero(t, l.b.peers.silent.n)
	c.SetSilent(true)
	require.Zero(t, l.b.peers.silent.n)
	l.b.pressure.stopWaiting(c)
}
