package stack

import (
	"context"
	"math"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// req: 9293-MUST-12
func TestOrderlyClose(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(10_000)
	u.closeSend()
	l.until("b sees the end", func() bool { return v.peerFin && v.edge == 10_000 })
	require.Zero(t, u.closed, "half closed is not closed")
	require.Equal(t, netip.MustParseAddrPort("10.0.0.2:7"), u.conn.Remote())
	require.Equal(t, u.conn.Local(), v.conn.Remote())
	require.Equal(t, uint64(10_000), u.conn.SentOffset())
	require.Equal(t, 1448, u.conn.EMSS(), "MTU 1500 less 40, less timestamps")
	require.Same(t, l.a.Poller, u.conn.Poller())
	require.Same(t, l.a.pool, l.a.Pool())
	require.Equal(t, []any{"host0", netip.MustParseAddr("10.0.0.1"), l.now},
		[]any{l.a.Name(), l.a.Addr(), l.a.Now()})
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
	for _, h := range l.hosts {
		c := h.counters()
		c.Each(func(layer, reason string, v uint64) {
			require.Zero(t, v, "%s: %s %s", h.cfg.Name, layer, reason)
		})
	}
	l.pass(61 * second)
	require.Equal(t, 0, l.a.counters().Conns)
	l.whole()
}

// A program may end as soon as its Upper is told that the connection has, and with it all that has
// not left: the peer learns of the end in each case.
// req: 9293-MUST-12
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
			u.send(1_000_000)
			v.send(100_000)
			u.conn.Abort()
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
			require.ErrorIs(t, u.err, map[error]error{ErrReset: ErrAborted}[x.err])
			l.a.nic.lose = nil
			l.stop()
		})
	}
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
