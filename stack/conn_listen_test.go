package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

func TestListenSaysWhatIsWrong(t *testing.T) {
	l := newLab(t, nil)
	yes := func(*Conn) Upper { return newPeer(t, 2) }
	require.NoError(t, l.b.Listen(7, 1, yes))
	require.ErrorIs(t, l.b.Listen(7, 1, yes), ErrPortUsed)
	require.Error(t, l.b.Listen(0, 1, yes))
	require.Error(t, l.b.Listen(8, 0, yes))
	require.Error(t, l.b.Listen(8, 1, nil))
	l.b.Unlisten(7)
	l.b.Unlisten(7)
	require.NoError(t, l.b.Listen(7, 1, yes))
}

func TestAcceptMayRefuse(t *testing.T) {
	l := newLab(t, nil)
	calls := 0
	require.NoError(t, l.b.Listen(7, 4, func(c *Conn) Upper {
		calls++
		require.Equal(t, l.a.addr, c.Remote().Addr())
		return nil
	}))
	u := l.dial(l.a, l.b, 7)
	l.until("reset", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrReset)
	require.Equal(t, 1, calls)
	require.Zero(t, l.b.counters().Conns)
}

// loseLastACK loses a's first segment that is no SYN and has no octets.
func (l *lab) loseLastACK() {
	lost := false
	l.a.nic.lose = func(f []byte) bool {
		s, _, ok := segmentOf(f)
		now := !lost && ok && s.Flags&tcp.SYN == 0 && s.Len == 0
		lost = lost || now
		return now
	}
}

// req: 9293-MUST-42
func TestBacklogBoundsHalfOpenConnections(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 3)
	block := true
	l.b.nic.lose = func(f []byte) bool { _, _, ok := segmentOf(f); return ok && block }
	us := l.dials(8)
	l.turns()
	l.turns()
	require.Equal(t, 3, l.b.ports.listeners[7].halfOpen)
	require.Equal(t, uint64(5), l.b.counters().Own[DropBacklogFull])
	block = false
	l.until("all get in", func() bool { return len(l.accepted) == 8 })
	require.Zero(t, l.b.ports.listeners[7].halfOpen)
	for _, u := range us {
		require.Zero(t, u.closed)
	}
}

// Peers that never answer cannot keep a port closed: the one that has been half-open longest gives
// way, at once, and those that got in are let alone.
func TestOldestHalfOpenGivesWay(t *testing.T) {
	const backlog = 3
	l := newLab(t, func(i int, cfg *Config) { cfg.NoSynCookies = true })
	l.listen(l.b, 7, backlog)
	first := l.dial(l.a, l.b, 7)
	l.until("open", func() bool { return len(l.accepted) == 1 })
	for i := range 20 {
		newGhost(l, uint16(1000+i)).send(tcp.SYN, 0, 0, noOptions)
		require.LessOrEqual(t, l.b.ports.listeners[7].halfOpen, backlog)
	}
	require.Equal(t, uint64(20-backlog), l.b.counters().Own[DropBacklogFull])
	for i := range 20 {
		id := tcp.ID{
			Local: inet.AddrFrom(l.b.addr), Remote: inet.AddrFrom(netip.MustParseAddr("10.0.0.77")),
			LocalPort: 7, RemotePort: uint16(1000 + i),
		}
		require.Equal(t, i >= 20-backlog, l.b.syns.find(&id) != noConn, "half-open %d", i)
	}
	start := l.now
	u := l.dial(l.a, l.b, 7, 1000)
	l.until("an honest peer gets in", func() bool {
		return len(l.accepted) == 2 && l.accepted[1].edge == 1000
	})
	require.Less(t, l.now-start, second, "it had to repeat its SYN")
	require.Zero(t, u.closed+first.closed)
}

// req: 9293-MUST-41
func TestUnlistenEndsHalfOpenOnly(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	block := true
	l.a.nic.lose = func(f []byte) bool {
		s, _, ok := segmentOf(f)
		return ok && block && s.Flags == tcp.ACK
	}
	w := l.another()
	require.Equal(t, 1, l.b.counters().Conns)
	require.Equal(t, 1, l.b.counters().HalfOpen)
	l.b.Unlisten(7)
	require.Zero(t, l.b.counters().HalfOpen)
	block = false
	l.until("w is reset", func() bool { return w.closed == 1 })
	require.ErrorIs(t, w.err, ErrReset)
	u.send(1000)
	l.until("u goes on", func() bool { return v.edge == 1000 })
	x := l.dial(l.a, l.b, 7)
	l.until("nobody listens", func() bool { return x.closed == 1 })
	require.ErrorIs(t, x.err, ErrRefused)
}

// Data that came with the last ACK of the handshake is offered after accept and Established.
func TestDataWithTheHandshakesEnd(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	l.loseLastACK() // so that the first data segment completes the handshake
	u := l.dial(l.a, l.b, 7, 3000)
	l.until("it arrives", func() bool { return len(l.accepted) == 1 && l.accepted[0].edge == 3000 })
	require.Zero(t, u.conn.Stats().Retransmits)
}

func TestSYNFromWhereNoRouteLeads(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	frame := segmentFrame(l.a.mac, l.b.mac, netip.MustParseAddr("192.0.2.9"), l.b.addr,
		stranger(tcp.SYN, 7), nil)
	require.Empty(t, l.answers(l.a, l.b, frame))
	require.Equal(t, uint64(1), l.b.counters().Own[DropNoRoute])
	require.Zero(t, l.b.ports.listeners[7].halfOpen)
}
