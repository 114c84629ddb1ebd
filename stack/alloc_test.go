package stack

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// mover is an Upper without a test in it: it sends zeros as long as it may and takes what comes.
type mover struct {
	taker
	sending bool
	edge    atomic.Uint64
	acked   uint64
	target  atomic.Uint64 // Edge signals reached when it passes this; 0: no
	reached chan struct{}
}

// wait blocks until so many octets have arrived. A third busy goroutine would take a core from the
// Pollers.
func (m *mover) wait(edge uint64) {
	m.target.Store(edge)
	<-m.reached
}

func (m *mover) Established()      { m.conn.Send() }
func (m *mover) Acked(edge uint64) { m.acked = edge }

func (m *mover) Edge(edge uint64) {
	m.edge.Store(edge)
	if at := m.target.Load(); at != 0 && edge >= at {
		m.target.Store(0)
		m.reached <- struct{}{}
	}
}

func (m *mover) Pull(dst [][]byte) Pulled {
	if !m.sending {
		return Pulled{}
	}
	return Pulled{N: len(dst), More: true}
}

// moving gives a lab with one connection over which a sends to b without end.
func moving(t testing.TB, tune func(i int, cfg *Config)) (*lab, *mover, *mover) {
	return movingTo(t, netip.MustParseAddr("10.0.0.2"), tune)
}

func movingTo(t testing.TB, b netip.Addr, tune func(i int, cfg *Config)) (*lab, *mover, *mover) {
	l := newLab(t, tune)
	src, dst := &mover{sending: true}, &mover{}
	require.NoError(t, l.b.Listen(7, 4, func(*Conn) Upper { return dst }))
	_, err := l.a.Dial(netip.AddrPortFrom(b, 7), src)
	require.NoError(t, err)
	for dst.edge.Load() < 10<<20 { // past slow start
		l.a.Turn()
		l.b.Turn()
		l.now += 10_000
	}
	return l, src, dst
}

// Nothing on the way of a packet allocates, of either family: not the Turn, not TCP, not the
// Upper's calls, timers and doorbells.
func TestTurnDoesNotAllocate(t *testing.T) {
	for loss, to := range map[int]netip.Addr{0: addr6(1), 50: netip.MustParseAddr("10.0.0.2")} {
		l, src, dst := movingTo(t, to, sixes)
		n := 0
		if loss > 0 { // retransmissions do not, either
			l.a.nic.lose = func([]byte) bool { n++; return n%loss == 0 }
		}
		before := dst.edge.Load()
		allocs := testing.AllocsPerRun(2000, func() {
			src.conn.Wake()
			src.conn.SetTimer(l.now + 5000)
			l.a.Turn()
			l.b.Turn()
			l.now += 10_000
		})
		require.Zero(t, allocs, "loss of one in %d", loss)
		require.Greater(t, dst.edge.Load()-before, uint64(1<<20), "there was traffic")
		if loss > 0 {
			require.NotZero(t, src.conn.Stats().Retransmits)
		}
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

func gigabits(b *testing.B, octets uint64) {
	b.ReportMetric(float64(octets)*8/float64(b.Elapsed().Nanoseconds()), "Gbit/s")
}

// One goroutine turns both ends: what a segment costs, sender, link and receiver together.
func BenchmarkOneConnectionOneGoroutine(b *testing.B) {
	l, src, dst := moving(b, func(i int, cfg *Config) { cfg.TCP.SentMax = 1024 })
	start := dst.edge.Load()
	b.ReportAllocs()
	b.SetBytes(1448)
	b.ResetTimer()
	want := start + uint64(b.N)*1448
	for dst.edge.Load() < want {
		l.a.Turn()
		l.b.Turn()
		l.now += 10_000
	}
	b.StopTimer()
	gigabits(b, dst.edge.Load()-start)
	if n := src.conn.Stats().Retransmits; n != 0 {
		b.Logf("%d retransmissions", n)
	}
}

// One goroutine per end, as it runs in earnest, on as many cores as there are.
func BenchmarkOneConnectionTwoGoroutines(b *testing.B) {
	l := newLab(b, func(i int, cfg *Config) {
		cfg.Clock = nil
		cfg.TCP.SentMax = 1024
	})
	src, dst := &mover{sending: true}, &mover{reached: make(chan struct{}, 1)}
	require.NoError(b, l.b.Listen(7, 4, func(*Conn) Upper { return dst }))
	ctx, cancel := context.WithCancel(context.Background())
	var pollers sync.WaitGroup
	for _, h := range l.hosts {
		pollers.Go(func() { _ = h.Run(ctx) })
	}
	require.NoError(b, l.a.Submit(func() {
		_, err := l.a.Dial(netip.AddrPortFrom(l.b.addr, 7), src)
		require.NoError(b, err)
	}))
	dst.wait(10 << 20)
	start := dst.edge.Load()
	b.SetBytes(1448)
	b.ResetTimer()
	dst.wait(start + uint64(b.N)*1448)
	b.StopTimer()
	gigabits(b, dst.edge.Load()-start)
	cancel()
	pollers.Wait()
}

// What a Turn costs that finds nothing: the price of polling.
func BenchmarkEmptyTurn(b *testing.B) {
	l, src, _ := moving(b, nil)
	src.sending = false
	l.pass(second)
	b.ReportAllocs()
	for b.Loop() {
		l.a.Turn()
	}
}
