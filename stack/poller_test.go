package stack

import (
	"context"
	"math"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

func TestConnectAndTransferBothWays(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4, 300_001)
	u := l.dial(l.a, l.b, 7, 500_003)
	var v *peer
	l.until("all arrived", func() bool {
		if len(l.accepted) == 1 {
			v = l.accepted[0]
		}
		return v != nil && v.edge == u.toSend && u.edge == v.toSend
	})
	l.until("all acknowledged", func() bool { return u.acked == u.sent && v.acked == v.sent })
	require.Equal(t, netip.MustParseAddrPort("10.0.0.2:7"), u.conn.Remote())
	require.Equal(t, u.conn.Local(), v.conn.Remote())
	require.Equal(t, uint64(500_003), u.conn.SentOffset())
	require.Equal(t, 1448, u.conn.EMSS(), "MTU 1500 less 40, less timestamps")
	require.Same(t, l.a.Poller, u.conn.Poller())
	require.Same(t, l.a.pool, l.a.Pool())
	require.Equal(t, []any{"host0", netip.MustParseAddr("10.0.0.1"), l.now},
		[]any{l.a.Name(), l.a.Addr(), l.a.Now()})
	n := l.b.counters()
	require.Equal(t, uint64(1), n.Accepted)
	require.Zero(t, u.conn.Stats().Retransmits)
	for _, h := range l.hosts {
		c := h.counters()
		c.Each(func(layer, reason string, v uint64) {
			require.Zero(t, v, "%s: %s %s", h.cfg.Name, layer, reason)
		})
	}
}

// req: 9293-MUST-12
func TestOrderlyClose(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(10_000)
	u.closeSend()
	l.until("b sees the end", func() bool { return v.peerFin && v.edge == 10_000 })
	require.Zero(t, u.closed, "half closed is not closed")
	v.send(20_000) // the other half goes on
	l.until("a has it", func() bool { return u.edge == 20_000 })
	require.Zero(t, v.closed)
	v.closeSend()
	l.until("both closed", func() bool { return u.closed == 1 && v.closed == 1 })
	require.NoError(t, u.err)
	require.NoError(t, v.err)
	require.True(t, u.peerFin)
	require.Equal(t, []string{"established", "peer closed", "closed"}, u.log)
	require.Equal(t, 1, l.a.counters().Conns, "TIME-WAIT is spent without the Upper")
	require.Equal(t, 0, l.b.counters().Conns)
	l.pass(61 * second)
	require.Equal(t, 0, l.a.counters().Conns)
	l.whole()
}

// A program may end as soon as its Upper is told that the connection has, and with it all that has
// not left: the peer learns of the end in each case.
func TestClosedComesAfterTheLastFrame(t *testing.T) {
	for name, x := range map[string]struct {
		end func(l *lab, u, v *peer)
		err error
	}{
		"the peer ends last":  {func(l *lab, u, v *peer) { u.closeSend(); v.closeSend() }, nil},
		"the peer ends first": {func(l *lab, u, v *peer) { v.closeSend(); u.closeSend() }, nil},
		"reset":               {func(l *lab, u, v *peer) { u.conn.Abort() }, ErrReset},
		"reset beside others": {func(l *lab, u, v *peer) {
			l.dial(l.a, l.b, 7)
			u.conn.Abort()
		}, ErrReset},
		"reset with octets": {func(l *lab, u, v *peer) {
			u.send(100_000)
			v.send(100_000)
			u.conn.Abort()
		}, ErrReset},
		"reset when half done": {func(l *lab, u, v *peer) { u.closeSend(); u.conn.Abort() }, ErrReset},
	} {
		t.Run(name, func(t *testing.T) {
			l, u, v := newLab(t, nil).opened()
			u.onClosed = func() { l.a.nic.lose = every }
			x.end(l, u, v)
			l.turns()
			require.Equal(t, []int{1, 1}, []int{u.closed, v.closed})
			require.ErrorIs(t, v.err, x.err)
		})
	}
}

// req: 9293-MUST-12
func TestAbortResetsThePeer(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(1_000_000)
	u.conn.Abort()
	u.conn.Abort()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
	require.ErrorIs(t, u.err, ErrAborted)
	require.ErrorIs(t, v.err, ErrReset)
	require.Zero(t, l.a.counters().Conns)
	require.Zero(t, l.b.counters().Conns)
	l.turns()
	l.whole()
}

// Every callback may make every call that callbacks may make.
func TestCallsFromWithinCallbacks(t *testing.T) {
	for _, where := range []string{"arrive", "pull", "closed"} {
		t.Run(where, func(t *testing.T) {
			l, u, v := newLab(t, nil).opened()
			n := 0
			act := func() {
				if n++; n != 3 && where != "closed" {
					return
				}
				v.conn.Send()
				v.conn.SetTimer(l.now + ms)
				v.conn.SetReceiveWindow(100_000)
				v.conn.CloseSend()
				v.conn.Abort()
				l.dialAt(l.b, netip.AddrPortFrom(l.a.addr, 9))
				require.NoError(t, l.b.Listen(uint16(100+n), 1, func(*Conn) Upper { return nil }))
				l.b.Unlisten(uint16(100 + n))
			}
			switch where {
			case "arrive":
				v.onArrive = act
			case "pull":
				v.onPull = act
			case "closed":
				v.onClosed = act
				v.conn.Abort()
			}
			u.send(100_000)
			v.send(100_000)
			l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
			require.ErrorIs(t, u.err, ErrReset)
			l.stop()
		})
	}
}

func TestConnsMax(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax = 4
		if i == 1 {
			cfg.ConnsMax = 2
		}
	})
	l.listen(l.b, 7, 16)
	us := l.dials(4)
	_, err := l.a.Dial(netip.AddrPortFrom(l.b.addr, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrConnMax)
	l.turns()
	require.Len(t, l.accepted, 2)
	require.Equal(t, uint64(1), l.a.counters().Own[DropConnMax])
	// Those that are established never give way. The others wait in the SYN cache, get in when
	// there is a slot, and are told when there was none in the end.
	require.Equal(t, uint64(2), l.b.counters().Own[DropConnMax])
	require.Equal(t, 2, l.b.counters().HalfOpen)
	l.accepted[0].conn.Abort()
	l.pass(5 * second)
	require.Len(t, l.accepted, 3)
	l.pass(100 * second)
	require.Len(t, l.accepted, 3)
	require.Zero(t, l.b.counters().HalfOpen)
	reset := 0
	for _, u := range us {
		if u.closed > 0 {
			require.ErrorIs(t, u.err, ErrReset)
			reset++
		}
	}
	require.Equal(t, 2, reset, "the one that b aborted, and the one that never got in")
}

func TestManyConnections(t *testing.T) {
	const conns = 100
	l := newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax = conns
		cfg.TCP.SentMax = 16
	})
	l.listen(l.b, 7, conns, 10_000)
	var us []*peer
	for i := range conns {
		us = append(us, l.dial(l.a, l.b, 7, 5000+i))
	}
	l.until("all moved", func() bool {
		if len(l.accepted) < conns {
			return false
		}
		for i := range us {
			if us[i].edge != 10_000 || l.accepted[i].gotCount < 5000 {
				return false
			}
		}
		return true
	})
	for i := range us {
		us[i].closeSend()
		l.accepted[i].closeSend()
	}
	l.until("all closed", func() bool {
		for i := range us {
			if us[i].closed+l.accepted[i].closed != 2 {
				return false
			}
		}
		return true
	})
	total := uint64(0)
	for _, v := range l.accepted {
		require.NoError(t, v.err)
		total += v.gotCount
	}
	require.Equal(t, uint64(conns*5000+conns*(conns-1)/2), total)
	l.pass(61 * second)
	require.Zero(t, l.a.counters().Conns+l.b.counters().Conns)
	require.Equal(t, uint64(conns), l.a.counters().Closed)
	l.whole()
	// The slots serve again.
	for i := range conns {
		us[i] = l.dial(l.a, l.b, 7, 100)
	}
	l.until("again", func() bool { return len(l.accepted) == 2*conns })
}

// Slots in TIME-WAIT give way to new connections when there are no others.
func TestTimeWaitGivesWay(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 2 })
	l.listen(l.b, 7, 4)
	for i := range 6 {
		u := l.dial(l.a, l.b, 7)
		l.until("open", func() bool { return len(l.accepted) == i+1 && u.opened })
		u.closeSend()
		l.accepted[i].closeSend()
		l.until("closed", func() bool { return u.closed == 1 && l.accepted[i].closed == 1 })
		require.NoError(t, u.err)
	}
	require.NotZero(t, l.a.counters().TimeWaitCut)
}

// req: DDP-13.1-3
func TestReceiveWindowHoldsThePeer(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	v.conn.SetReceiveWindow(10_000)
	l.turns()
	most, first := tcp.Seq(0), tcp.Seq(0)
	l.a.nic.onSend = func(f []byte) {
		s, _, _ := segmentOf(f)
		if first == 0 {
			first = s.Seq
		}
		// What was promised before stays promised, 1 MiB: the right edge does not move back (RFC
		// 9293 section 3.8.6).
		if end := s.Seq + tcp.Seq(s.Len); end-first > 1<<20 {
			most = max(most, end-(first+tcp.Seq(v.edge)))
		}
	}
	u.send(2_000_000)
	l.until("all there", func() bool { return v.edge == 2_000_000 })
	require.NotZero(t, most)
	require.LessOrEqual(t, most, tcp.Seq(10_000+64)) // rounded to the scale
}

func TestRefusedOctetsComeAgain(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	refusals := 0
	v.verdict = func(off uint64, n int) Verdict {
		if refusals < 5 && off%3 == 0 {
			refusals++
			return Refused
		}
		return Taken
	}
	u.send(200_000)
	l.until("all there", func() bool { return v.edge == 200_000 })
	require.Equal(t, 5, refusals)
	require.Equal(t, uint64(5), l.b.counters().TCP[tcp.DropRefused])
}

func TestKeptBufsAreTheUppers(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	v.verdict = func(off uint64, n int) Verdict { return Kept }
	u.send(100_000)
	l.until("all there", func() bool { return v.edge == 100_000 })
	l.turns()
	require.NotEmpty(t, v.kept)
	for _, b := range v.kept { // still as they came
		_, payload, ok := segmentOf(l.b.pool.Data(b))
		require.True(t, ok)
		require.NotEmpty(t, payload)
	}
	l.b.pool.FreeN(v.kept)
}

func TestStopTellsEverybody(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	dialing := l.dialTo("10.0.0.77:1")
	u.send(1_000_000)
	l.a.Turn()
	l.a.Stop()
	require.ErrorIs(t, l.a.Submit(func() {}), ErrStopped)
	l.a.Turn()
	require.ErrorIs(t, u.err, ErrStopped)
	require.ErrorIs(t, dialing.err, ErrStopped)
	select {
	case <-l.a.Done():
	default:
		t.Fatal("Done is not closed")
	}
	require.Equal(t, int64(math.MaxInt64), l.a.Deadline())
	require.Zero(t, l.a.Turn())
	_, err := l.a.Dial(netip.AddrPortFrom(l.b.addr, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorIs(t, l.a.Listen(5, 1, func(*Conn) Upper { return nil }), ErrStopped)
	l.until("b is reset", func() bool { return v.closed == 1 })
	require.ErrorIs(t, v.err, ErrReset)
	n := must(l.a.Counters(context.Background()))(t)
	require.Zero(t, n.Conns)
}

// Stop ends the connections of a device that takes no more frames, whether or not the transmit
// batch has room for their RSTs.
func TestStopWithADeadDevice(t *testing.T) {
	for _, pending := range []int{0, 64} {
		l, u, _ := newLab(t, func(i int, cfg *Config) {
			cfg.PendingMax, cfg.TCP.InitialWindow = pending, 100
		}).opened()
		l.a.nic.txMax = 0
		u.send(1_000_000)
		for range 20 {
			l.a.Turn()
		}
		require.Equal(t, pending != 0, l.a.counters().TxWaits > 0)
		l.a.Stop()
		l.a.Turn()
		require.Equal(t, 1, u.closed)
		require.NotZero(t, l.a.last.Own[DropStopped])
		l.stop()
	}
}

// req: 9293-MUST-17
func TestNagleIsPerConnection(t *testing.T) {
	l, u, v := newLab(t, func(i int, cfg *Config) { cfg.TCP.NoDelay = false }).opened()
	u.chunk = 100
	u.send(300)
	l.a.Turn()
	require.Equal(t, uint64(1), u.conn.Stats().SegsOut-2,
		"the second small segment waits for the first one's ACK")
	u.conn.SetNoDelay(true)
	l.a.Turn()
	require.Equal(t, uint64(3), u.conn.Stats().SegsOut-2)
	l.until("there", func() bool { return v.edge == 300 })
}
