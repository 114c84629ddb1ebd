package stack

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// mover is an Upper without a test in it: it sends zeros as long as it may and takes what comes.
type mover struct {
	taker
	sending bool
	edge    uint64
}

func (m *mover) Established()     { m.conn.Send() }
func (m *mover) Edge(edge uint64) { m.edge = edge }

func (m *mover) Pull(dst [][]byte) Pulled {
	if !m.sending {
		return Pulled{}
	}
	return Pulled{N: len(dst), More: true}
}

// moving has a send to b's address without end; it returns past slow start.
func (l *lab) moving(b netip.Addr) (src, dst *mover) {
	src, dst = &mover{sending: true}, &mover{}
	require.NoError(l.t, l.b.Listen(7, 4, func(*Conn) Upper { return dst }))
	must(l.a.Dial(netip.AddrPortFrom(b, 7), src))(l.t)
	for dst.edge < 10<<20 {
		l.a.Turn()
		l.b.Turn()
		l.now += 10_000
	}
	return src, dst
}

// Nothing on the way of a packet allocates, of either family, coalesced or not: not the Turn, not
// TCP, not the Upper's calls, timers and doorbells.
func TestTurnDoesNotAllocate(t *testing.T) {
	for loss, to := range map[int]netip.Addr{0: addr6(1), 50: netip.MustParseAddr("10.0.0.2")} {
		l := newLab(t, sixes)
		if loss == 0 {
			l = offloaded(t, sixes)
		}
		src, dst := l.moving(to)
		n := 0
		if loss > 0 { // retransmissions do not, either
			l.a.nic.lose = func([]byte) bool { n++; return n%loss == 0 }
		}
		before := dst.edge
		allocs := testing.AllocsPerRun(2000, func() {
			src.conn.Wake()
			src.conn.SetTimer(l.now + 5000)
			l.a.Turn()
			l.b.Turn()
			l.now += 10_000
		})
		require.Zero(t, allocs, "loss of one in %d", loss)
		require.Greater(t, dst.edge-before, uint64(1<<20), "there was traffic")
		require.Equal(t, loss > 0, src.conn.Stats().Retransmits > 0)
		require.Equal(t, loss == 0, l.b.counters().Coalesced > 1000)
	}
}

// Opening and closing connections does not allocate either, nor do segments without one.
func TestConnectionsDoNotAllocate(t *testing.T) {
	l := newLab(t, nil)
	dst, src := &mover{}, &mover{}
	require.NoError(t, l.b.Listen(7, 4, func(*Conn) Upper { return dst }))
	remote := netip.AddrPortFrom(l.b.addr, 7)
	once := func() {
		c, err := l.a.Dial(remote, src)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			l.a.Turn()
			l.b.Turn()
		}
		c.Abort()
		for range 2 {
			l.a.Turn()
			l.b.Turn()
		}
		l.now += 10_000
	}
	once()
	require.Zero(t, testing.AllocsPerRun(100, once))
	require.Greater(t, l.b.counters().Accepted, uint64(100))
	require.Zero(t, l.b.counters().Conns)
}
