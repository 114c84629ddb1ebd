package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// R1: the Upper is told if it has asked for that, the next hop is asked for once for all
// connections that stall, and progress ends it.
//
// req: 9293-MUST-20, 9293-SHLD-9, 9293-SHLD-10, 9293-MUST-47, 9293-SHLD-20
func TestStalledConnectionAsksForItsNextHop(t *testing.T) {
	l := newLab(t, nil)
	u, v := l.open()
	w := l.another()
	block, asked := true, 0
	l.a.nic.lose = func(f []byte) bool {
		if isARP(f) {
			asked++
		}
		_, _, ok := segmentOf(f)
		return ok && block
	}
	retransmits := func() uint64 { return u.conn.Stats().Retransmits }
	u.send(100)
	w.send(100)
	l.until("two retransmissions", func() bool { return retransmits() == 2 })
	require.Empty(t, u.advice)
	require.NoError(t, u.conn.SoftError())
	l.until("three time-outs", func() bool {
		return u.conn.Stats().Timeouts == 3 && w.conn.Stats().Timeouts == 3
	})
	l.turns()
	require.Equal(t, []error{ErrStalled}, u.advice)
	require.ErrorIs(t, u.conn.SoftError(), ErrStalled)
	require.ErrorIs(t, w.conn.SoftError(), ErrStalled, "kept until it is asked for")
	require.Equal(t, uint64(2), l.a.counters().Stalled)
	require.Equal(t, 1, asked)
	block = false
	l.until("through", func() bool { return v.edge == 100 && u.acked == 100 })
	require.NoError(t, u.conn.SoftError())
}

// req: 9293-MUST-47, 9293-SHLD-25, 9293-MUST-22
func TestTimeoutWithoutASoftError(t *testing.T) {
	l, u, _ := newLab(t, nil).opened() // nothing was said: a mere timeout
	l.a.nic.lose = isTCP
	u.send(100)
	l.until("given up", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrTimeout)
	require.Contains(t, u.advice, ErrStalled)

	l = newLab(t, nil) // a SYN is no different
	l.b.nic.lose = isTCP
	l.listen(l.b, 7, 4)
	w := l.dial(l.a, l.b, 7)
	l.until("told", func() bool { return len(w.advice) == 1 })
	require.ErrorIs(t, w.advice[0], ErrStalled)
	require.Zero(t, w.closed)
}

// req: 9293-MAY-5, 9293-MUST-24, 9293-MUST-26
func TestKeepAliveFindsAPeerThatVanished(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	l.pass(10_000 * second)
	require.Zero(t, u.closed+v.closed)
	sent := l.a.nic.sent
	u.conn.SetKeepAlive(60*second, 10*second, 3)
	l.pass(1000 * second)
	require.Zero(t, u.closed, "b answers")
	require.Greater(t, l.a.nic.sent-sent, 10)
	l.b.nic.lose = isTCP
	start := l.now
	l.until("found", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrTimeout)
	require.LessOrEqual(t, l.now-start, 90*second+ms)
	require.GreaterOrEqual(t, l.now-start, 30*second)
}

// req: 9293-MAY-1, 9293-SHLD-3
func TestOrphan(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.closeSend()
	u.conn.SetOrphaned()
	l.until("FIN-WAIT-2", func() bool { return v.peerFin })
	start := l.now
	l.until("not for ever", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrTimeout)
	require.InDelta(t, 60*second, l.now-start, float64(second))
	v.send(10) // too late: the connection is gone
	l.until("reset", func() bool { return v.closed == 1 })
	require.ErrorIs(t, v.err, ErrReset)
	l.stop()

	l = newLab(t, nil)
	u, v = l.open()
	u.closeSend()
	u.conn.SetOrphaned()
	v.send(10)
	l.until("reset", func() bool { return u.closed == 1 && v.closed == 1 })
	require.ErrorIs(t, u.err, ErrReset)
	require.ErrorIs(t, v.err, ErrReset)
	require.Zero(t, u.edge)
	require.Equal(t, uint64(1), l.a.counters().TCP[tcp.DropOrphaned])
}

// A port that is in TIME-WAIT serves again towards the same remote end, but not at once, and beyond
// the old numbers.
//
// req: 9293-SHLD-4
func TestDialReusesPortInTimeWait(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(4 << 20) // more than the clock of initial sequence numbers makes up for
	l.finish(u, v)
	require.Equal(t, 1, l.a.counters().Conns)
	old := &l.a.slab.conns[l.a.slab.lingering.first]
	port, beyond := old.tcp.ID().LocalPort, old.tcp.SndNxt()
	again := func() *peer { l.a.ports.next--; return l.dial(l.a, l.b, 7, 1000) }

	w := again()
	require.NotEqual(t, port, w.conn.tcp.ID().LocalPort, "too soon")
	w.conn.Abort()
	l.until("gone", func() bool { return w.closed == 1 })
	l.a.ports.next--
	l.pass(2 * second)
	w = again()
	require.Equal(t, port, w.conn.tcp.ID().LocalPort)
	require.Positive(t, w.conn.tcp.ISS().Sub(beyond))
	require.Equal(t, uint64(1), l.a.counters().TimeWaitCut)
	l.until("open", func() bool {
		return len(l.accepted) >= 2 && l.accepted[len(l.accepted)-1].edge == 1000
	})
}

// The same for a listener's end, by timestamps: the new sequence number may be anywhere (RFC 6191).
//
// req: 9293-SHLD-4, 9293-MAY-2
func TestSYNReopensByTimestamp(t *testing.T) {
	for _, later := range []bool{true, false} {
		l, g, sa := handshaking(t, nil, allOptions)
		o := tcp.Options{WindowScale: -1, HasTimestamps: true, TSval: 6000, TSecr: sa.Options.TSval}
		g.send(tcp.ACK, 1, sa.Seq+1, o)
		l.accepted[0].closeSend()
		l.b.Turn()
		g.send(tcp.ACK|tcp.FIN, 1, sa.Seq+2, o)
		l.b.Turn()
		require.Equal(t, 1, l.accepted[0].closed)
		end := l.b.slab.conns[l.b.slab.lingering.first].tcp.SndNxt()
		l.b.neighbours.Learn(l.now, inet.AddrFrom4([4]byte{10, 0, 0, 77}), l.a.mac, true)
		l.b.Turn()
		g.isn -= 1 << 30
		o = allOptions
		if o.TSval = 6001; !later {
			o.TSval = 5999
		}
		got := g.send(tcp.SYN, 0, 0, o)
		require.Len(t, got, 1)
		if !later {
			require.Equal(t, tcp.ACK, got[0].Flags, "the old connection's challenge")
			continue
		}
		require.Equal(t, tcp.SYN|tcp.ACK, got[0].Flags)
		require.Positive(t, got[0].Seq.Sub(end))
		l.stop()
	}
}

// withoutMemory is n open connections of a, which has memory for two of them to send; no segment
// reaches b until unblock is called.
func withoutMemory(t *testing.T, n int) (l *lab, us []*peer, unblock func()) {
	t.Helper()
	l = newLab(t, func(i int, cfg *Config) {
		if i == 0 {
			cfg.TCP.RecordsMax, cfg.TCP.SentMax = 16, 16
		}
	})
	us, block := l.openMany(n), true
	l.b.nic.lose = func(f []byte) bool { _, _, ok := segmentOf(f); return ok && block }
	return l, us, func() { block = false }
}

// Connections without anything in flight wait their turn for memory, do not spin meanwhile, and
// none is forgotten.
func TestConnectionsWithoutBufsAreServed(t *testing.T) {
	l, us, unblock := withoutMemory(t, 8)
	for _, u := range us {
		u.send(20_000)
		u.closeSend()
	}
	l.turns()
	require.Equal(t, uint64(6), l.a.counters().MemoryWaits)
	require.NotZero(t, l.a.counters().Memory.RecordsShort)
	require.Greater(t, l.a.Deadline(), l.now+2*retryNs, "it would spin")
	l.a.Turn()
	require.Equal(t, uint64(6), l.a.counters().MemoryWaits)
	unblock()
	l.until("all through", func() bool {
		for _, v := range l.accepted {
			if v.edge != 20_000 || !v.peerFin {
				return false
			}
		}
		return true
	})
	for _, v := range l.accepted {
		v.closeSend()
	}
	l.until("closed", func() bool {
		return l.a.counters().Closed+uint64(l.a.counters().Conns) == 8 && l.b.counters().Conns == 0
	})
	m := l.a.counters().Memory
	require.Equal(t, m.Records, m.RecordsFree)
}

// A connection that waits for memory that is aborted leaves the list; one that closes while it
// waits sends its FIN in the end.
func TestConnectionsWithoutBufsEnd(t *testing.T) {
	l, us, unblock := withoutMemory(t, 5)
	us[0].send(100)
	us[1].send(100)
	l.turns()
	us[2].send(100)
	us[3].closeSend()
	us[4].send(100)
	l.turns()
	require.Equal(t, uint64(3), l.a.counters().MemoryWaits)
	us[2].conn.Abort()
	l.turns()
	require.Equal(t, 1, us[2].closed)
	unblock()
	l.until("FIN and octets", func() bool {
		return l.accepted[3].peerFin && l.accepted[4].edge == 100
	})
	require.Equal(t, noConn, l.a.pressure.waiting.first)
}

// What is given in small pieces between two turns leaves in segments as large as can be: an Upper
// is asked for octets when they can be sent, and for as many.
//
// req: 9293-SHLD-27
func TestSmallSendsMerge(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	var sizes []int
	l.a.nic.onSend = func(f []byte) {
		if s, _, ok := segmentOf(f); ok && s.Len > 0 {
			sizes = append(sizes, s.Len)
		}
	}
	for range 300 {
		u.send(10)
	}
	l.turns()
	require.Equal(t, []int{1448, 1448, 3000 - 2*1448}, sizes)
}

// req: 9293-MUST-21
func TestUserTimeoutOfAConnection(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	u.conn.SetUserTimeout(3 * second)
	l.a.nic.lose = isTCP
	start := l.now
	u.send(100)
	l.until("given up", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrTimeout)
	require.Equal(t, 3*second, l.now-start)
}
