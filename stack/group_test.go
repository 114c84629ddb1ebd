package stack

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// steering is a port whose queues get each frame by chance, worse than any device, or as steer
// says.
type steering struct {
	under pmd.Queue
	pool  *mem.Pool // of under
	rng   *rand.Rand
	steer func(frame []byte) int // nil: by chance
	boxes [][][]byte
}

// steered is one of its queues.
type steered struct {
	*steering
	i    int
	pool *mem.Pool
}

func (q *steered) Counters() pmd.Counters { return pmd.Counters{} }

func (q *steered) Rx(bufs []mem.Buf) int {
	var in [64]mem.Buf
	n := q.under.Rx(in[:])
	for _, b := range in[:n] {
		to := q.rng.IntN(len(q.boxes))
		if q.steer != nil {
			to = q.steer(q.steering.pool.Data(b))
		}
		q.boxes[to] = append(q.boxes[to], slices.Clone(q.steering.pool.Data(b)))
	}
	q.steering.pool.FreeN(in[:n])
	box := q.boxes[q.i]
	n = q.pool.AllocN(bufs[:min(len(bufs), len(box))])
	for k, b := range bufs[:n] {
		q.pool.Desc(b).Len = uint32(len(box[k]))
		copy(q.pool.Data(b), box[k])
	}
	q.boxes[q.i] = box[n:]
	return n
}

func (q *steered) Tx(bufs []mem.Buf) int {
	for i, b := range bufs {
		c := q.steering.pool.Alloc()
		q.steering.pool.Desc(c).Len = q.pool.Desc(b).Len
		copy(q.steering.pool.Data(c), q.pool.Data(b))
		n := q.under.Tx([]mem.Buf{c})
		q.steering.pool.Free(c)
		if n == 0 {
			return i
		}
	}
	return len(bufs)
}

// groupLab is host a and a Group of n Pollers at 10.0.0.2, l.hosts[1:].
func groupLab(t *testing.T, n int) *lab { return groupLabTuned(t, n, nil) }

func groupLabTuned(t *testing.T, n int, tune func(cfg *Config)) *lab {
	t.Helper()
	l := &lab{t: t, now: 1000 * second}
	link := must(wire.New(wire.Config{}))(t)
	l.a = l.host(link.Port(0), 0, func(_ int, cfg *Config) { cfg.ConnsMax = 128 })
	l.hosts = append(l.hosts, l.a)
	s := &steering{rng: rand.New(rand.NewPCG(1, uint64(n))), boxes: make([][][]byte, n)}
	s.pool = newPool(t, labBufs)
	port := link.Port(1)
	s.under = must(port.Open(0, s.pool))(t)
	g := must(NewGroup(n))(t)
	g.secret = [16]byte{7} // of chance only the steering, from a seed
	addr := netip.MustParseAddr("10.0.0.2")
	for i := range n {
		pool := newPool(t, labBufs)
		q := &nic{Queue: &steered{steering: s, i: i, pool: pool}, pool: pool, txMax: -1}
		cfg := Config{
			Name: "member" + string(rune('0'+i)), Queue: q, Pool: pool, Caps: port.Caps(), MAC: port.MAC(),
			Addr: netip.PrefixFrom(addr, 24),
			Core: -1, Clock: func() int64 {
				return l.now
			}, NoDAD: true, NoAnnounce: true, ConnsMax: 64, TCP: tcp.Config{NoDelay: true, SentMax: 256},
			Group: g, Member: i,
		}
		if tune != nil {
			tune(&cfg)
		}
		p := must(New(cfg))(t)
		l.hosts = append(l.hosts, &host{introducer: introducer{p}, t: t, pool: pool, nic: q, addr: addr,
			mac: cfg.MAC})
	}
	l.b = l.hosts[1]
	return l.ends()
}

// Every frame comes to a queue by chance. Connections of both directions are opened, carry octets
// both ways and close, and neighbours and path MTUs are learned by the Pollers that they concern.
func TestGroupUnderRandomSteering(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		l := groupLab(t, n)
		for _, h := range l.hosts {
			l.listen(h, 7, 16, 20_000)
		}
		var dialled []*peer
		for i := range 10 {
			dialled = append(dialled, l.dial(l.a, l.b, 7, 30_000+i))
			for _, h := range l.hosts[1:] {
				dialled = append(dialled, l.dial(h, l.a, 7, 10_000+i))
			}
		}
		all := func(f func(u *peer) bool) bool {
			return len(l.accepted) == len(dialled) &&
				!slices.ContainsFunc(append(slices.Clone(dialled), l.accepted...), func(u *peer) bool {
					return !f(u)
				})
		}
		l.until("all is sent and acknowledged", func() bool {
			return all(func(u *peer) bool { return u.sent == u.toSend && u.acked == u.toSend })
		})
		for _, u := range dialled {
			require.Equal(t, uint64(20_000), u.edge)
			require.NoError(t, u.err)
		}
		for _, u := range append(slices.Clone(dialled), l.accepted...) {
			u.closeSend()
		}
		l.until("closed", func() bool { return all(func(u *peer) bool { return u.closed == 1 }) })
		crossed := uint64(0)
		for i, h := range l.hosts {
			k := h.counters()
			crossed += k.Crossed
			require.Zero(t, k.RSTSent, "host %d of %d", i, n)
			require.Zero(t, k.Own[DropCrossing])
			if n > 1 && i > 0 {
				require.NotZero(t, k.Connected)
				require.NotZero(t, k.Accepted, "the hash gives every member its share")
			}
		}
		require.Equal(t, n > 1, crossed > 0)
		for _, u := range append(slices.Clone(dialled), l.accepted...) {
			require.NoError(t, u.err)
		}
		l.pass(61 * second)
		for _, h := range l.hosts {
			require.Zero(t, h.counters().Conns)
		}
	}
}

// A report about a connection comes to a member that it does not belong to.
func TestGroupOverhearsReports(t *testing.T) {
	l := groupLab(t, 3)
	l.listen(l.a, 7, 16)
	var us []*peer
	for _, h := range l.hosts[1:] {
		us = append(us, l.dial(h, l.a, 7))
	}
	l.until("open", func() bool { return len(l.accepted) == 3 })
	for _, u := range us {
		l.a.nic.lose = nil
		told := false
		u.conn.Poller().cfg.Queue.(*nic).lose = func(f []byte) bool {
			if s, _, ok := segmentOf(f); ok && s.Len > 600 {
				if !told {
					told = true
					l.a.nic.inject(icmpErrorFrame(netip.MustParseAddr("10.0.0.9"), l.hosts[1],
						inet.ICMPUnreachable, inet.ICMPFragNeeded, 600, f))
				}
				return true
			}
			return false
		}
		u.send(5000)
		l.until("through small segments", func() bool { return u.acked == 5000 })
		require.LessOrEqual(t, u.conn.EMSS(), 560)
	}
	for _, h := range l.hosts[1:] {
		require.Equal(t, uint64(1), h.counters().PathMTU, "each heard of its own connection")
	}
}

func TestGroupConfig(t *testing.T) {
	_, err := NewGroup(0)
	require.Error(t, err)
	_, err = NewGroup(groupMax + 1)
	require.Error(t, err)
	g := must(NewGroup(2))(t)
	link := must(wire.New(wire.Config{}))(t)
	pool := newPool(t, 64)
	q := must(link.Port(0).Open(0, pool))(t)
	cfg := Config{
		Name: "m", Queue: q, Pool: pool, Caps: link.Port(0).Caps(), MAC: link.Port(0).MAC(),
		Addr: netip.MustParsePrefix("10.0.0.1/24"), ConnsMax: 4, Core: -1, Group: g,
	}
	for member, want := range map[int]string{2: "member 2 of a group of 2",
		-1: "member -1 of a group of 2"} {
		cfg.Member = member
		require.ErrorContains(t, errOf(New(cfg)), want)
	}
	cfg.Member = 1
	_, err = New(cfg)
	require.NoError(t, err)
	require.ErrorContains(t, errOf(New(cfg)), "member 1 of its group was made before")
}

// A ring between members that is full costs frames, which are counted; its consumer gives the room
// back.
func TestCrossingFull(t *testing.T) {
	l := groupLab(t, 2)
	from, to := l.hosts[1], l.hosts[2]
	b := from.pool.Alloc()
	defer from.pool.Free(b)
	for round := range 2 {
		from.pool.Desc(b).Len = 60
		for range crossingSlots + 2 {
			from.member.cross(b, 1, false)
		}
		require.Equal(t, uint64(2*(round+1)), from.counters().Own[DropCrossing])
		require.Equal(t, uint64(crossingSlots*(round+1)), from.counters().Crossed)
		require.LessOrEqual(t, to.Deadline(), l.now, "they wait for a Turn")
		require.GreaterOrEqual(t, to.Turn(), crossingSlots)
		require.Zero(t, to.Turn())
	}
	from.pool.Desc(b).Len = uint32(frameMaxOf(1500) + 1)
	from.member.cross(b, 1, false)
	require.Equal(t, uint64(5), from.counters().Own[DropCrossing], "too long for a slot")
	require.Greater(t, to.Deadline(), l.now)
	from.pool.Desc(b).Len = 60
	from.member.cross(b, 1, false)
	require.LessOrEqual(t, to.Deadline(), l.now, "one frame waits as well")
	to.Turn()
}

// BenchmarkCrossing is a frame of 1514 octets from one Poller to another, both on this goroutine:
// what a stray costs beside the frame itself, two copies, where no core waits for another's cache.
func BenchmarkCrossing(b *testing.B) {
	x := newCrossing(frameMaxOf(1500))
	pool := newPool(b, 64)
	in, out := pool.Alloc(), pool.Alloc()
	pool.Desc(in).Len = 1514
	for b.Loop() {
		x.put(pool.Data(in), pool.Desc(in), false)
		s := x.ring.Peek(0)
		pool.Desc(out).Len = s.length
		copy(pool.Data(out), x.octets(s))
		x.ring.Release(1)
	}
}

// PeerMax is one limit for all members; with it ConnsMax has to be the same too, without it not.
func TestGroupHasOnePeerMax(t *testing.T) {
	for _, tc := range []struct {
		peers, conns [2]int
		ok           bool
	}{
		{[2]int{0, 0}, [2]int{4, 4}, true}, {[2]int{0, 0}, [2]int{4, 5}, true},
		{[2]int{1, 1}, [2]int{4, 4}, true},
		{[2]int{1, 1}, [2]int{4, 5}, false}, {[2]int{1, 2}, [2]int{4, 4}, false},
		{[2]int{1, 0}, [2]int{4, 4}, false},
		{[2]int{0, 1}, [2]int{4, 4}, false},
	} {
		g := must(NewGroup(2))(t)
		require.NoError(t, g.check(&Config{PeerMax: tc.peers[0], ConnsMax: tc.conns[0]}))
		cfg := Config{Member: 1, PeerMax: tc.peers[1], ConnsMax: tc.conns[1]}
		err := g.check(&cfg)
		if !tc.ok {
			require.ErrorContains(t, err, "it is one limit for all", "%+v", tc)
			continue
		}
		require.NoError(t, err, "%+v", tc)
		require.Equal(t, g.secret, cfg.Secret)
	}
}
