package bench

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// pollers are two of them on a wire, turned by one goroutine in virtual time.
type pollers struct {
	tb             testing.TB
	now            int64
	ports          uint16 // that the server listens on
	server, client *stack.Poller
	pools          [2]*mem.Pool
}

// delayedAckNs is short, so that the number of Bufs that wait for an ACK does not depend on how
// many connections share the traffic.
const delayedAckNs = 1000

const (
	pollerBufs  = 2048
	portFirst   = 5000
	portsListen = 16 // at least: a client has 16384 ports towards each
	portConns   = 12_000
)

func newPollers(tb testing.TB, conns int) *pollers {
	return newPollersOver(tb, conns, fault.Spec{})
}

// newPollersOver is newPollers with devices and a cable that are as spec says.
func newPollersOver(tb testing.TB, conns int, spec fault.Spec) *pollers {
	p := &pollers{tb: tb, ports: uint16(max(portsListen, (conns+portConns-1)/portConns)),
		now: time.Now().UnixNano()}
	link, err := wire.New(wire.Config{})
	require.NoError(tb, err)
	for i := range 2 {
		p.pools[i] = testhost.NewPool(tb, pollerBufs, 1500)
		var port pmd.Port = link.Port(i)
		if spec != (fault.Spec{}) {
			port, err = fault.NewPort(port, spec, func() int64 { return p.now })
			require.NoError(tb, err)
		}
		poller := testhost.NewPoller(tb, port, stack.Config{
			Pool: p.pools[i], Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24),
			ConnsMax: conns,
			Clock: func() int64 {
				return p.now
			}, TCP: tcp.Config{NoDelay: true, DelayedAckNs: delayedAckNs},
		})
		if i == 0 {
			p.server = poller
		} else {
			p.client = poller
		}
	}
	return p
}

// turn turns both once, with so much time between.
func (p *pollers) turn(ns int64) int {
	p.now += ns
	return p.client.Turn() + p.server.Turn()
}

// knower is an Upper that is told its Conn by who dials or listens.
type knower interface {
	stack.Upper
	know(c *stack.Conn)
}

// idler is one that takes what comes and has nothing to say, to be embedded.
type idler struct{ testhost.Upper }

func (u *idler) know(c *stack.Conn) { u.Conn = c }

// establish opens n connections; make gives each end its Upper.
func (p *pollers) establish(n int, make func(server bool, i int) knower) {
	accepted := 0
	for port := range p.ports {
		require.NoError(p.tb, p.server.Listen(portFirst+port, 64, func(c *stack.Conn) stack.Upper {
			u := make(true, accepted)
			u.know(c)
			accepted++
			return u
		}))
	}
	for i := range n {
		to := netip.AddrPortFrom(p.server.Addr(), portFirst+uint16(i%int(p.ports)))
		u := make(false, i)
		c, err := p.client.Dial(to, u)
		require.NoError(p.tb, err)
		u.know(c)
		for accepted < i-8 {
			p.turn(10_000)
		}
	}
	for range 1000 {
		p.turn(1_000_000)
	}
	require.Equal(p.tb, n, accepted)
}

// idleOctets opens n connections and returns what one end of an idle one takes: all of both
// Pollers, except their packet buffers, of which it must hold none. took is the processor
// time of opening them, both ends.
func idleOctets(tb testing.TB, n int) (each float64, took time.Duration) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var all idler
	before := heap()
	p := newPollers(tb, n)
	began := cpuNs(tb)
	p.establish(n, func(bool, int) knower { return &all })
	took = time.Duration(cpuNs(tb) - began)
	octets := heap() - before
	for i, poller := range [...]*stack.Poller{p.server, p.client} {
		var c stack.Counters
		poller.Snapshot(&c)
		require.Equal(tb, n, c.Conns)
		require.GreaterOrEqual(tb, p.pools[i].Available(), pollerBufs-1, "an idle connection holds a Buf")
		require.Equal(tb, c.Memory.Records, c.Memory.RecordsFree)
		octets -= int64(len(p.pools[i].Memory()))
	}
	runtime.KeepAlive(p)
	return float64(octets) / float64(2*n), took
}

// An idle connection takes at most 1 KiB, everything included: tcp, stack, lookup, timers, lists
// and doorbell, its part of what all share. It is told by the difference between two numbers of
// connections, without what a Poller takes for any number.
func TestOctetsPerIdleConnection(t *testing.T) {
	const limit, few, many = 1024, 1 << 16, 1 << 17
	atFew, _ := idleOctets(t, few)
	atMany, _ := idleOctets(t, many)
	octets := (atMany*many - atFew*few) / (many - few)
	t.Logf("%.0f octets per end; %.0f of %d", octets, atMany, many)
	require.LessOrEqual(t, octets, float64(limit))
}

// echo is a client that sends small requests, or a server that answers each.
type echo struct {
	idler
	owed   int
	got    int // octets
	server bool
}

const requestOctets = 64

func (e *echo) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	for _, octets := range data {
		e.got += len(octets)
		if e.server {
			e.owed += len(octets)
		}
	}
	return len(data), stack.Taken
}

func (e *echo) Pull(dst [][]byte) (got stack.Pulled) {
	for ; got.N < len(dst) && e.owed > 0; got.N++ {
		n := min(e.owed, len(dst[got.N]), requestOctets) // one request is one segment
		dst[got.N] = dst[got.N][:n]
		got.Ends |= 1 << got.N
		e.owed -= n
	}
	got.More = e.owed > 0
	return got
}

// cpuNs is the processor time this process has had: on a shared machine it says more than the clock
// on the wall.
func cpuNs(tb testing.TB) int64 {
	var u unix.Rusage
	require.NoError(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

// shortLived is one end of a connection that is closed as soon as it is open, the server first.
type shortLived struct {
	idler
	of *shortLives
}

// shortLives are the same end of all of them.
type shortLives struct {
	server bool
	closed int
	failed error
	free   []*shortLived // for the next connections
}

func (l *shortLives) next() *shortLived {
	n := len(l.free) - 1
	if n < 0 {
		return &shortLived{of: l}
	}
	u := l.free[n]
	l.free = l.free[:n]
	return u
}

func (u *shortLived) Established() {
	if u.of.server {
		u.Conn.CloseSend()
	}
}

func (u *shortLived) PeerClosed() {
	if !u.of.server {
		u.Conn.CloseSend()
	}
}

func (u *shortLived) Closed(err error) {
	u.of.closed++
	if err != nil {
		u.of.failed = err
	}
	u.of.free = append(u.of.free, u)
}

// BenchmarkConnectionsPerSecond opens and closes connections, both ends on one core: handshake, a
// FIN each way, TIME-WAIT at the server, whose slots run out and whose tuples come again. The mark:
// 100,000 a second.
func BenchmarkConnectionsPerSecond(b *testing.B) {
	p := newPollers(b, 4096)
	server, client := &shortLives{server: true}, &shortLives{}
	require.NoError(b, p.server.Listen(portFirst, 64, func(c *stack.Conn) stack.Upper {
		u := server.next()
		u.know(c)
		return u
	}))
	to := netip.AddrPortFrom(p.server.Addr(), portFirst)
	b.ReportAllocs()
	b.ResetTimer()
	const outstanding = 32
	dialled := 0
	for client.closed < b.N {
		for dialled < b.N && dialled-client.closed < outstanding {
			u := client.next()
			c, err := p.client.Dial(to, u)
			if err != nil {
				b.Fatal(err)
			}
			u.know(c)
			dialled++
		}
		p.turn(5_000)
	}
	b.StopTimer()
	require.NoError(b, client.failed)
	require.NoError(b, server.failed)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conns/s")
	var n stack.Counters
	p.server.Snapshot(&n)
	b.ReportMetric(float64(n.TimeWaitCut)/float64(b.N), "cut/op")
}
