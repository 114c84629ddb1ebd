package vswitch

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// poller is a host at a station of the lab, in its time.
func (s *side) poller(mac inet.MAC, at inet.Addr, conns int) *stack.Poller {
	s.l.t.Helper()
	p, err := stack.New(stack.Config{
		Name: at.String(), Queue: s.q, Pool: s.pool, Caps: s.port.Caps(), MAC: mac, Core: -1, NoDAD: true,
		ConnsMax: conns,
		Addr:     netip.PrefixFrom(at.Netip(), 24), MTU: 1500, Clock: func() int64 { return s.l.now },
		TCP: tcp.Config{NoDelay: true, ReceiveWindow: 32 << 10},
	})
	require.NoError(s.l.t, err)
	return p
}

// pouring always has something to send, or takes what comes.
type pouring struct {
	testhost.Upper
	sends bool
	came  int
}

func (u *pouring) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	for _, octets := range data {
		u.came += len(octets)
	}
	return len(data), stack.Taken
}

func (u *pouring) Pull(dst [][]byte) stack.Pulled {
	if !u.sends {
		return stack.Pulled{}
	}
	return stack.Pulled{N: len(dst), More: true}
}

// The connections of a program share an uplink that takes less than they have to send, however
// little it takes at a time.
func TestConnectionsOfAProgramShareTheUplink(t *testing.T) {
	r := newRand(t)
	for range sample.Count(1, 3) {
		conns, takes := 8+r.IntN(57), 1+r.IntN(6) // frames of the uplink in a turn
		left := 0
		l := newLab(t, func(c *Config) { c.Uplinks[0].Port = narrow{c.Uplinks[0].Port, &left} })
		one, out := l.sides["one"].poller(macOne, ipOne, conns), l.uplink.poller(macOut, ipOut, conns)
		turn := func(ns int64, octets int) {
			left = min(left, 0) + octets
			l.now += ns
			one.Turn()
			for _, c := range l.sw.Cores() {
				c.Turn(l.now)
			}
			out.Turn()
		}
		var from, to []*pouring
		require.NoError(t, out.Listen(7, 64, func(*stack.Conn) stack.Upper {
			to = append(to, &pouring{})
			return to[len(to)-1]
		}))
		var dialled []*stack.Conn
		for range conns {
			from = append(from, &pouring{})
			c := must(one.Dial(netip.AddrPortFrom(ipOut.Netip(), 7), from[len(from)-1]))(t)
			dialled = append(dialled, c)
		}
		for n := 0; len(to) < conns; n++ {
			require.Less(t, n, 100_000)
			turn(1_000_000, 1<<20) // the next hop is asked for first, and SYNs that find no place come again
		}
		for i, c := range dialled {
			from[i].sends = true
			c.Send()
		}
		const frame = 1514
		for range 200 * conns { // past the start
			turn(10_000, takes*frame)
		}
		var before []int
		for _, u := range to {
			before = append(before, u.came)
		}
		for range 400 * conns {
			turn(10_000, takes*frame)
		}
		sum, squares := 0.0, 0.0
		for i, u := range to {
			share := float64(u.came - before[i])
			sum, squares = sum+share, squares+share*share
		}
		jain := sum * sum / (float64(conns) * squares)
		t.Logf("%d connections, %d frames a turn: Jain's index %.3f", conns, takes, jain)
		require.GreaterOrEqual(t, jain, 0.95)
		require.Greater(t, sum, 0.9*float64(400*conns*takes*1448), "the uplink has hardly been idle")
		one.Stop()
		out.Stop()
	}
}

// An uplink that takes nothing holds a program up for a moment only: what is for it is lost then,
// and what is for others goes on.
func TestStalledUplinkHoldsNobodyUp(t *testing.T) {
	left := 0
	l := newLab(t, func(c *Config) {
		c.Uplinks[0].Port, c.Uplinks[0].Buffers = narrow{c.Uplinks[0].Port, &left}, 64
	})
	one, two := l.sides["one"], l.sides["two"]
	out := segment(macOut, macOne, ipOne, ipOut, 1000, 9)
	left = 10 * len(out)
	for range 200 { // it takes ten, and 64 wait
		one.tries(one.q, out)
		l.turn()
	}
	require.NotZero(t, l.stats("one").Throttled, "with its share of a full uplink it waits")
	require.Zero(t, l.drops("out")["full"])
	one.tries(one.q, segment(macTwo, macOne, ipOne, ipTwo, 1000, 9))
	l.turn()
	require.Empty(t, two.take())
	l.now += stillNs
	l.turn()
	require.Len(t, two.take(), 1)
	require.NotZero(t, l.drops("out")["full"])
	left = 1 << 20
	l.turn()
	l.uplink.take()
	l.requireWhole()
}
