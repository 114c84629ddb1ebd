package stream

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// virtual is two hosts at the ends of a cable in virtual time: the test turns their Pollers, and
// time passes only in until and pass. Calls that wait for a Poller go through during.
type virtual struct {
	t     testing.TB
	now   int64
	hosts [2]*virtualHost
}

type virtualHost struct {
	*stack.Poller
	pool *mem.Pool
	nic  *watchedQueue
	addr netip.Addr
	mine []*stack.Poller
}

// watchedQueue sees what a host sends, and can lose it.
type watchedQueue struct {
	pmd.Queue
	pool *mem.Pool
	sent []sentFrame
	lose func(f sentFrame) bool
}

// sentFrame is a TCP segment on the wire.
type sentFrame struct {
	tos  uint8
	seg  tcp.Segment
	size int // octets
}

func (q *watchedQueue) Tx(bufs []mem.Buf) int {
	for i, b := range bufs {
		f, ok := segmentIn(q.pool.Data(b))
		if ok && q.lose != nil && q.lose(f) {
			continue
		}
		if q.Queue.Tx(bufs[i:i+1]) == 0 {
			return i
		}
		if ok {
			q.sent = append(q.sent, f)
		}
	}
	return len(bufs)
}

func segmentIn(frame []byte) (f sentFrame, ok bool) {
	eth, b, drop := inet.ParseEthernet(frame)
	if drop != inet.DropNone {
		return f, false
	}
	switch eth.Type {
	case inet.EtherTypeIPv4:
		ip, rest, drop := inet.ParseIPv4(b, false)
		if drop != inet.DropNone || ip.Proto != inet.ProtoTCP {
			return f, false
		}
		f.tos, b = ip.TOS, rest
	case inet.EtherTypeIPv6:
		if b[6] != inet.ProtoTCP {
			return f, false
		}
		f.tos, b = b[0]<<4|b[1]>>4, b[inet.IPv6Len:]
	default:
		return f, false
	}
	ok = tcp.Parse(b, &f.seg) == tcp.DropNone
	f.size = f.seg.Len
	return f, ok
}

// newVirtual makes the hosts 10.0.0.1 and fd00::1, and 10.0.0.2 and fd00::2; tune changes their
// Configs.
func newVirtual(t testing.TB, mtu int, tune func(i int, cfg *stack.Config)) *virtual {
	t.Helper()
	v := &virtual{t: t, now: int64(1000 * time.Second)}
	link := must(wire.New(wire.Config{MTU: mtu}))(t)
	for i := range v.hosts {
		port := link.Port(i)
		pool := testhost.NewPool(t, 1024, max(1500, mtu))
		q := must(port.Open(0, pool))(t)
		h := &virtualHost{pool: pool, nic: &watchedQueue{Queue: q, pool: pool},
			addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
		cfg := stack.Config{
			Name: fmt.Sprintf("host%d", i), Queue: h.nic, Pool: pool, Addr: netip.PrefixFrom(h.addr, 24),
			ConnsMax: 16,
			Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}),
				64)}, NoDAD: true,
			Clock: func() int64 { return v.now },
		}
		if tune != nil {
			tune(i, &cfg)
		}
		h.Poller = testhost.NewPoller(t, port, cfg)
		h.mine = []*stack.Poller{h.Poller}
		v.hosts[i] = h
	}
	t.Cleanup(v.stop)
	return v
}

func (v *virtual) turn() (work int) {
	for _, h := range v.hosts {
		work += h.Turn()
	}
	return work
}

// next is when the next timer is due.
func (v *virtual) next() int64 { return min(v.hosts[0].Deadline(), v.hosts[1].Deadline()) }

// pass lets d pass, with everything that becomes due.
func (v *virtual) pass(d time.Duration) {
	end := v.now + int64(d)
	for {
		for v.turn() > 0 {
		}
		if at := v.next(); at < end {
			v.now = max(v.now+1, at)
			continue
		}
		v.now = end
		for v.turn() > 0 {
		}
		return
	}
}

// until lets time pass until cond holds, an hour of it at the most, and says how much it was.
func (v *virtual) until(what string, cond func() bool) time.Duration {
	v.t.Helper()
	begin := v.now
	for v.now-begin < int64(time.Hour) {
		work := v.turn()
		if cond() {
			return time.Duration(v.now - begin)
		}
		if work > 0 {
			continue
		}
		at := v.next()
		if at == math.MaxInt64 {
			break
		}
		v.now = max(v.now+1, at)
	}
	v.t.Fatalf("waited in vain for: %s", what)
	return 0
}

// during turns the hosts, while time stands still, until a call that waits for them has returned.
func (v *virtual) during(f func()) {
	v.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	end := time.Now().Add(patience)
	for !isDone(done) {
		if v.turn() == 0 {
			runtime.Gosched()
		}
		if time.Now().After(end) {
			v.t.Fatal("a call does not return")
		}
	}
}

// pair gives both ends of a connection over IPv4; the first is host 0's.
func (v *virtual) pair(copts, sopts Options) (a, b *Conn) {
	v.t.Helper()
	return v.pairAt(netip.AddrPortFrom(v.hosts[1].addr, 80), copts, sopts)
}

// newVirtualPair is a virtual and both ends of a connection in it, as newPair.
func newVirtualPair(t testing.TB, mtu int, tune func(int, *stack.Config),
	opts ...Options) (v *virtual, a, b *Conn) {
	t.Helper()
	v, opts = newVirtual(t, mtu, tune), append(opts, Options{}, Options{})
	a, b = v.pair(opts[0], opts[1])
	return v, a, b
}

func (v *virtual) pairAt(to netip.AddrPort, copts, sopts Options) (a, b *Conn) {
	v.t.Helper()
	v.during(func() {
		ln := must(Listen(v.hosts[1].mine, to.Port(), sopts))(v.t)
		a = must(Dial(context.Background(), v.hosts[0].mine, to, copts))(v.t)
		b = must(ln.AcceptStream())(v.t)
		require.NoError(v.t, ln.Close())
	})
	return a, b
}

func (v *virtual) info(c *Conn) (i Info) {
	v.t.Helper()
	v.during(func() {
		i = must(c.Info(context.Background()))(v.t)
	})
	return i
}

// write writes text, for which there is room.
func (v *virtual) write(c *Conn, text string) {
	v.t.Helper()
	n := must(c.Write([]byte(text)))(v.t)
	require.Equal(v.t, len(text), n)
}

// read is what there is to be read now.
func (v *virtual) read(c *Conn) string {
	v.t.Helper()
	b := make([]byte, 1<<16)
	n, err := c.TryRead(b)
	if n == 0 {
		require.Error(v.t, err)
	}
	return string(b[:n])
}

// sizes are of the segments with octets that host i has sent since it was last asked.
func (v *virtual) sizes(i int) (sizes []int) {
	for _, f := range v.hosts[i].nic.sent {
		if f.size > 0 {
			sizes = append(sizes, f.size)
		}
	}
	v.hosts[i].nic.sent = nil
	return sizes
}

func dead(c *Conn) func() bool { return func() bool { return c.u.state.Load()&stateDead != 0 } }

// conns is how many connections a host has that are not in TIME-WAIT.
func (v *virtual) conns(i int) int {
	var n stack.Counters
	v.hosts[i].Snapshot(&n)
	return n.Conns - n.TimeWait
}

// stop ends both hosts; every Buf must be back.
func (v *virtual) stop() {
	for _, h := range v.hosts {
		h.Stop()
	}
	for range 3 {
		v.turn()
	}
	left := make([]mem.Buf, 64)
	for _, h := range v.hosts {
		for n := h.nic.Rx(left); n > 0; n = h.nic.Rx(left) {
			h.pool.FreeN(left[:n])
		}
		require.Equal(v.t, h.pool.Size(), h.pool.Available(), "%s: Bufs lost", h.Name())
		require.Zero(v.t, pollerStateOf(h.Poller).kept, "%s: Bufs counted as kept", h.Name())
	}
}
