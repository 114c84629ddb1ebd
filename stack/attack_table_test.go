package stack

import (
	"encoding/binary"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// Attacks on what there is a fixed number of: slots, and what one connection may tell about
// another.

// obliging acknowledges everything and never closes.
func obliging(m *member, s *tcp.Segment) {
	if s.SeqLen() > 0 || s.Flags&tcp.SYN != 0 {
		m.ack(m.got, 65535)
	}
}

// few is a table that a small crowd fills.
func few(cfg *Config) { cfg.ConnsMax = 64 }

// One address takes no more than its share of the table; another gets in beside it, and so does it
// when it has let go, whichever way that was.
func TestPeerMax(t *testing.T) {
	for _, cookies := range []bool{false, true} {
		l := newLab(t, func(i int, cfg *Config) { cfg.PeerMax = 2 })
		l.listen(l.b, 7, 4)
		if cookies {
			noise(l, 4)
		}
		open := func(port uint16) *ghost {
			g := newGhost(l, port)
			if got := g.send(tcp.SYN, 0, 0, noOptions); len(got) > 0 {
				g.send(tcp.ACK, 1, got[0].Seq+1, noOptions)
			}
			return g
		}
		g := open(1000)
		open(1001)
		require.Len(t, l.accepted, 2)
		open(1002)
		require.Len(t, l.accepted, 2)
		require.NotZero(t, l.b.counters().Own[DropPeerMax])
		u := l.dial(l.a, l.b, 7, 100)
		l.until("another address", func() bool { return len(l.accepted) == 3 && u.acked == 100 })
		g.send(tcp.RST, 1, 0, noOptions)
		open(1003)
		require.Len(t, l.accepted, 4)
		l.stop()
		noPeers(t, l.b.peers.counts)
	}
	_, err := New(Config{Queue: newLab(t, nil).a.nic, Pool: newLab(t, nil).a.pool, MAC: inet.MAC{2},
		PeerMax: -1})
	require.Error(t, err)
}

// A connection in TIME-WAIT is none of its peer's any more: it gives way to others, too.
func TestPeerMaxLeavesTimeWaitOut(t *testing.T) {
	l, u, v := newLab(t, func(i int, cfg *Config) { cfg.PeerMax = 1 }).opened()
	l.finish(v, u)
	require.Equal(t, 1, l.b.counters().TimeWait)
	w := l.dial(l.a, l.b, 7)
	l.turns()
	require.True(t, w.opened)
	require.Zero(t, l.b.counters().Own[DropPeerMax])
}

// Handshakes that both complete in the same moment share what is left: SYNs are let in one by one,
// their ends are too.
func TestPeerMaxAtTheHandshakesEnd(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.PeerMax = 1 })
	l.listen(l.b, 7, 4)
	g, h := newGhost(l, 1000), newGhost(l, 1001)
	a, b := g.syn(noOptions), h.syn(noOptions)
	g.send(tcp.ACK, 1, a.Seq+1, noOptions)
	h.send(tcp.ACK, 1, b.Seq+1, noOptions)
	require.Len(t, l.accepted, 1)
	require.Equal(t, uint64(1), l.b.counters().Own[DropPeerMax])
	g.send(tcp.RST, 1, 0, noOptions)
	h.send(tcp.ACK, 1, b.Seq+1, noOptions)
	require.Len(t, l.accepted, 2, "its handshake goes on when there is room")
}

// TIME-WAIT in every slot but the healthy one's: the oldest gives way to each that comes.
func TestTimeWaitExhaustion(t *testing.T) {
	quiet := undisturbed(t, few, siegeTicks)
	s := newSiege(t, few)
	c, springs := s.gather(500, func() *spring { return &spring{fin: true} })
	c.behave = func(m *member, seg *tcp.Segment) {
		if m.finished && m.n == 0 {
			m.n++
			m.say(tcp.FIN|tcp.ACK, m.got, 65535, noOptions)
			return
		}
		obliging(m, seg)
	}
	got := s.run(siegeTicks, c.act)
	require.Greater(t, got, quiet*95/100)
	c.opened()
	s.u.toSend, s.v.toSend = s.u.sent, s.v.sent
	c.pass(10 * second) // some came while all slots were in their handshake, and come again
	require.Equal(t, 500, len(*springs))
	for _, u := range *springs {
		require.Equal(t, 1, u.closed)
		require.NoError(t, u.err)
	}
	n := s.b.counters()
	require.Equal(t, 63, n.TimeWait)
	require.GreaterOrEqual(t, n.TimeWaitCut, uint64(500-63))
	s.end()
}

// A connection whose challenge ACKs are used up tells nothing of another's: each has its own limit
// (RFC 5961 section 7; a limit for all is what CVE-2016-5696 read other people's sequence numbers
// from).
//
// req: 5961-7-1
func TestChallengesOfOthers(t *testing.T) {
	s := newSiege(t, nil)
	w := s.dial(s.a, s.b, 7)
	s.run(10, nil)
	require.True(t, w.opened)
	other := s.accepted[1]
	challenge := func(u, v *peer) int {
		before := v.conn.Stats().ChallengeAcks
		s.hostile(s.spoofed(s.a.addr, u.conn.tcp.ID().LocalPort, 7, tcp.RST,
			u.conn.tcp.ISS()+1+tcp.Seq(v.edge)+100, 0))
		s.b.Turn()
		return int(v.conn.Stats().ChallengeAcks - before)
	}
	s.u.toSend, s.v.toSend = s.u.sent, s.v.sent
	s.run(10, nil)
	for range 100 {
		challenge(w, other)
	}
	require.Equal(t, uint64(10), other.conn.Stats().ChallengeAcks)
	for i := range 20 {
		require.Equal(t, i < 10, challenge(s.u, s.v) == 1)
	}
	s.end()
}

// Packet Too Big of every size, about what is in flight and what is not: a flow does not slow down
// for it.
//
// req: 5927-7.2-1, 5927-4.1-1
func TestTooBigFlood6(t *testing.T) {
	l, u, v := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		cfg.TCP.ReceiveWindow = 32 << 10
	}).opened6()
	u.send(100_000)
	l.until("it flows", func() bool { return v.edge == 100_000 })
	mtus := []uint32{0, 68, 576, 1279, 1280, 1281, 1400, 1499, 1500, 65535, 1 << 31}
	u.send(1_000_000)
	for i := range 1000 {
		for j, back := range []uint32{0, 1 << 20} {
			tr := tcp.Transmit{ID: *u.conn.tcp.ID(), Flags: tcp.ACK, Handle: tcp.NoHandle,
				Seq: u.conn.tcp.ISS() + 1 + tcp.Seq(u.acked) - tcp.Seq(back)}
			quote := segmentFrame(l.a.mac, l.b.mac, addr6(0), addr6(1), tr, make([]byte, 1000))
			m := append(make([]byte, inet.ICMPLen), quote[inet.EthernetLen:]...)
			m[0] = inet.ICMP6TooBig
			binary.BigEndian.PutUint32(m[4:], mtus[(i+j)%len(mtus)])
			l.b.nic.inject(icmp6(mallory, l.a.mac, addr6(9), addr6(0), 64, m))
		}
		l.a.Turn()
		l.b.Turn()
		l.now += 50_000
	}
	require.Equal(t, uint64(1_100_000), v.edge)
	require.Zero(t, l.a.counters().PathMTU)
	require.Equal(t, uint64(2000), l.a.counters().ICMPIgnored)
	require.Equal(t, 1428, u.conn.EMSS())
}

// A peer may shrink the path of its own connection as often as there are sizes. That costs a step
// each time, and no look at the others; those to the same host follow when they are next asked.
func TestReportsCostNoWalk(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	w := l.another()
	l.a.nic.lose = func(f []byte) bool { s, _, ok := segmentOf(f); return ok && s.Len > 0 }
	u.send(5000)
	l.a.Turn()
	for mtu := 1490; mtu > 600; mtu -= 10 {
		l.reports(u, 0, 1000, mtu)
		require.Equal(t, uint16(1500), w.conn.path.mtu, "another connection was looked at")
	}
	require.Equal(t, uint64(89), l.a.counters().PathMTU)
	require.Equal(t, 610-52, w.conn.EMSS())
	require.Equal(t, 610-52, u.conn.EMSS())
	l.a.nic.lose = nil
	l.until("there", func() bool { return v.edge == 5000 })
}

// A single peer that takes nothing keeps two thirds of the pool at most, whatever its window; with
// BufShare 50 a third.
func TestShareOfThePool(t *testing.T) {
	for _, c := range []struct{ share, percent int }{{0, 200}, {50, 50}} {
		l, u, _ := newLab(t, func(i int, cfg *Config) {
			cfg.TCP.SentMax, cfg.TCP.InitialWindow, cfg.TCP.ReceiveWindow = 4096, 4096, 16<<20
			cfg.BufShare = c.share
		}).opened()
		u.send(1)
		l.until("known", func() bool { return u.acked == 1 })
		l.b.nic.lose = every
		free := l.a.pool.Available() - l.a.pressure.budget.Reserve
		u.send(1 << 40)
		for range 200 {
			l.turns()
		}
		held := u.conn.tcp.Held()
		require.InDelta(t, free*c.percent/(100+c.percent), held, 3)
		require.NotZero(t, l.a.counters().ShareWaits)
		require.Zero(t, l.a.counters().NoBufWaits)
	}
}
