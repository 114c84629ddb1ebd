package vswitch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// A program that reads nothing has its ring and its buffers filled, and loses the rest; others
// lose nothing meanwhile, and what waited comes when it reads again.
func TestSlowProgramHoldsNobodyUp(t *testing.T) {
	const buffers = 64
	l := newLab(t, func(c *Config) { c.Programs[1].Buffers = buffers })
	const rounds, each = 40, 20
	for i := range rounds {
		for range each {
			l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, uint16(i)))
			l.uplink.send(segment(macShared, macOut, ipOut, ipShared, 9, 1000))
		}
		l.turn()
		require.Len(t, l.sides["left"].take(), each)
	}
	const ring = 256
	require.Equal(t, map[string]uint64{"full": rounds*each - ring - buffers}, l.drops("two"))
	require.Equal(t, buffers, l.stats("two").Waiting)
	require.Len(t, l.sides["two"].take(), ring)
	l.turn()
	require.Len(t, l.sides["two"].take(), buffers)
	l.turn()
	l.requireWhole()
}

// A program that is not there gets nothing, which is counted, and holds no buffers.
func TestDetachedProgram(t *testing.T) {
	l := newLab(t, nil)
	l.detach("two")
	for range 100 {
		l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
	}
	l.turn()
	require.Equal(t, map[string]uint64{"detached": 100}, l.drops("two"))
	l.requireWhole()
	l.attach(&l.cfg.Programs[1])
	l.goes("two", "one", segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
}

// In virtual time a program sends and receives at the rates that it has, in octets and in frames:
// what it sends waits in its ring, what it would receive is lost.
func TestRates(t *testing.T) {
	const length = 1000
	frame := func() []byte {
		f := segment(macTwo, macOne, ipOne, ipTwo, 1, 2)
		return append(f, make([]byte, length-len(f))...)
	}
	for name, c := range map[string]struct {
		rate    Rate
		frames  int // of the first burst, and in each millisecond after
		another int
	}{
		"octets": {Rate{Octets: 10_000_000}, 100, 10},
		"frames": {Rate{Frames: 20_000}, 200, 20},
		"both":   {Rate{Octets: 1 << 36, Frames: 5_000}, 50, 5},
		"none":   {Rate{}, 240, 240},
	} {
		t.Run("send "+name, func(t *testing.T) {
			l := newLab(t, func(c2 *Config) { c2.Programs[0].Send = c.rate })
			l.now += 1e9
			for range 240 {
				l.sides["one"].send(frame())
			}
			got := len(l.spin())
			require.InDelta(t, c.frames, got, 35)
			total := got
			for range 20 {
				for range got {
					l.sides["one"].send(frame())
				}
				l.now += 1e6
				got = len(l.spin())
				total += got
			}
			if name != "none" {
				require.InDelta(t, c.frames+20*c.another, total, 35)
				require.NotZero(t, l.stats("one").Throttled)
				require.Empty(t, l.drops("one"), "nothing is lost")
			}
		})
		t.Run("receive "+name, func(t *testing.T) {
			l := newLab(t, func(c2 *Config) { c2.Programs[1].Receive = c.rate })
			l.now += 1e9
			total, got := 0, 0
			for range 21 { // 200 ms and a burst
				for range 200 {
					l.sides["one"].send(frame())
				}
				total += 200
				got += len(l.spin())
				l.now += 1e7
			}
			want := total
			if name != "none" {
				want = min(total, c.frames+200*c.another)
			}
			require.InDelta(t, want, got, float64(want)/50+35)
			two := l.stats("two")
			require.EqualValues(t, total-got, int(two.Drops[Over])+two.Waiting)
		})
	}
}

// spin turns without letting time pass, and returns what two got.
func (l *lab) spin() (frames [][]byte) {
	for range 20 {
		l.sw.Cores()[0].Turn(l.now)
		frames = append(frames, l.sides["two"].take()...)
	}
	return frames
}

// The bucket brings what its rate says, whatever the steps: against a sum of whole numbers.
func TestBucket(t *testing.T) {
	for _, rate := range []int64{1, 999, 125_000_000, 12_500_000_000, RateMax} {
		for _, step := range []int64{999, 1_000, 123_456, 7_000_000, 900_000_000} {
			b := newBucket(rate, 1)
			b.fill(1)
			b.level = 0
			var taken int64
			now := int64(1)
			for range 2000 {
				now += step
				b.fill(now)
				if b.level > 0 {
					taken += b.level
					b.take(b.level)
				}
			}
			perStep := float64(rate) * float64(step) / 1e9
			want := perStep * 2000
			if perStep > float64(b.depth) {
				want = float64(b.depth) * 2000
			}
			require.InDelta(t, want, taken, 1+want/100, "rate %d, step %d", rate, step)
		}
	}
}

// Frames of a flow that come together are looked up once; one that only looks like them is judged
// by itself.
func TestRunsAreLookedUpOnce(t *testing.T) {
	for name, f := range map[string]func(sport uint16) []byte{
		"IPv4": func(sport uint16) []byte { return segment(macTwo, macOne, ipOne, ipTwo, sport, 2) },
		"IPv6": func(sport uint16) []byte { return segment(macTwo, macOne, ip6One, ip6Two, sport, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			core := l.sw.Cores()[0]
			before := core.stats.Lookups
			for range burst {
				l.sides["one"].send(f(1))
			}
			l.turn()
			require.EqualValues(t, 1, core.stats.Lookups-before)
			require.Len(t, l.sides["two"].take(), burst)
			// Each octet that says whose a frame is ends the run, when it is another.
			whole := f(1)
			lookups, last := core.stats.Lookups, 14+20+4
			if name == "IPv6" {
				last = 14 + 40 + 4
			}
			differs := 0
			for at := range last {
				bad := f(1)
				bad[at] ^= 1
				l.sides["one"].send(whole, bad)
				l.turn()
				got := l.got()
				require.NotEmpty(t, got["two"])
				if core.stats.Lookups-lookups > 1 {
					differs++
				} else {
					require.Len(t, got["two"], 2, "octet %d", at)
				}
				lookups = core.stats.Lookups
			}
			t.Logf("%d of %d octets tell", differs, last)
			for _, at := range tellingOctets(name) {
				bad := f(1)
				bad[at] ^= 1
				before := core.stats.Lookups
				l.sides["one"].send(whole, bad)
				l.turn()
				require.EqualValues(t, 2, core.stats.Lookups-before, "octet %d", at)
				l.got()
			}
		})
	}
}

// tellingOctets are those of MACs, type, version, protocol, addresses and ports.
func tellingOctets(name string) (at []int) {
	for i := range 15 {
		at = append(at, i)
	}
	from, to, proto := 26, 38, 23
	if name == "IPv6" {
		from, to, proto = 22, 58, 20
		at[14] = 13
	}
	at = append(at, proto)
	for i := from; i < to; i++ {
		at = append(at, i)
	}
	return at
}

// No frame takes memory from the heap: not TCP, not ARP, not multicast, not what is dropped, nor
// on the way to another core.
func TestNothingIsAllocated(t *testing.T) {
	for _, cores := range []int{1, 2} {
		l := newLab(t, func(c *Config) { c.Cores = cores; c.Programs[1].Core = cores - 1 })
		frames := [][]byte{
			segment(macTwo, macOne, ipOne, ipTwo, 1, 2), segment(macOut, macOne, ip6One, ip6Out, 1, 2),
			segment(macTwo, macOne, ipOut, ipTwo, 1, 2),
			segment(macShared, macOne, ipOne, ipShared, 1, 2000),
			segment(macShared, macOne, ipOne, ipShared, 1, 5000),
			four(macShared, macOne, ipv4(ipOne, ipShared, 6, 0x2000, tcpOf(9, 3000))),
			four(macShared, macOne, ipv4(ipOne, ipShared, 6, 4, tcpOf(9, 3000))),
			arpFrame(allStations, requestOf(macOne)), six(ip6Shared.SolicitedNode().GroupMAC(), macOne,
				solicit(ip6One, ip6Shared, macOne, ip6Shared.SolicitedNode())),
		}
		s := l.sides["one"]
		bufs := make([]mem.Buf, len(frames))
		var in [32]mem.Buf
		step := func() {
			for i, f := range frames {
				bufs[i] = s.pool.Alloc()
				s.pool.Desc(bufs[i]).Len = uint32(len(f))
				copy(s.pool.Data(bufs[i]), f)
			}
			if n := s.q.Tx(bufs); n != len(bufs) {
				t.Fatal("no room")
			}
			s.pool.FreeN(bufs)
			for range 3 {
				l.now += 1000
				for _, c := range l.sw.Cores() {
					c.Turn(l.now)
				}
			}
			for _, name := range []string{"one", "two", "left", "right"} {
				o := l.sides[name]
				o.pool.FreeN(in[:o.q.Rx(in[:])])
			}
			l.uplink.pool.FreeN(in[:l.uplink.q.Rx(in[:])])
		}
		step()
		n := testing.AllocsPerRun(200, step)
		if !raceEnabled { // which allocates
			require.Zero(t, n, "%d cores", cores)
		}
	}
}

// Programs and queues of the uplink may be anywhere: frames come to them over the cores' wires.
func TestCores(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Cores = 3
		for i := range c.Programs {
			c.Programs[i].Core = i % 3
		}
	})
	for i, c := range []struct {
		from string
		f    []byte
		to   string
	}{
		{"one", segment(macTwo, macOne, ipOne, ipTwo, 1, 2), "two"},
		{"two", segment(macOut, macTwo, ipTwo, ipOut, 1, 2), "out"},
		{"out", segment(macTwo, macOut, ipOut, ipTwo, 1, 2), "two"},
		{"out", segment(macShared, macOut, ipOut, ipShared, 1, 1000), "left"},
		{"two", segment(macShared, macTwo, ipTwo, ipShared, 1, 2000), "right"},
		{"out", arpFrame(allStations, announceOf(macOut)), "one two left right"},
		{"two", arpFrame(allStations, requestOf(macTwo)), "two"}, // answered
	} {
		l.side(c.from).send(c.f)
		l.turn()
		got := l.got()
		require.Equal(t, c.to, names(got), "%d", i)
		if i < 6 {
			for _, frames := range got {
				require.Equal(t, c.f, frames[0])
			}
		}
		l.requireWhole()
	}
	// A frame for a port that is gone meanwhile is lost, and does not reach the program that has its
	// slot now.
	m := l.sw.programs[1]
	m.serial++
	l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
	l.sw.Cores()[0].Turn(l.now + 1) // it is on the wire with the new number
	m.serial--
	l.turn()
	require.Empty(t, names(l.got()))
	require.EqualValues(t, 1, l.sw.Cores()[1].stats.Drops[Gone])
	l.requireWhole()
}

// Frames of a flow go to one queue of a program with several, those of different flows to
// different ones.
func TestQueuesOfProgram(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Programs[1].Queues = 4 })
	two := l.sides["two"]
	for _, f := range []func(uint16) []byte{
		func(p uint16) []byte { return segment(macTwo, macOne, ipOne, ipTwo, p, 2) },
		func(p uint16) []byte { return segment(macTwo, macOne, ip6One, ip6Two, p, 2) },
	} {
		used := map[int]bool{}
		for port := range uint16(64) {
			l.sides["one"].send(f(port), f(port), f(port))
			l.turn()
			counts := []int{}
			var bufs [32]mem.Buf
			for i, q := range two.all {
				if n := q.Rx(bufs[:]); n > 0 {
					two.pool.FreeN(bufs[:n])
					counts = append(counts, n)
					used[i] = true
				}
			}
			require.Equal(t, []int{3}, counts)
		}
		require.Len(t, used, 4)
	}
}

// A program that has sent all that its rate allows sends from each of its queues in turn.
func TestThrottledQueuesTakeTurns(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Programs[0].Queues, c.Programs[0].Send.Frames = 4, 100*burst })
	one := l.sides["one"]
	for i, q := range one.all {
		for range 4 * burst {
			require.True(t, one.tries(q, segment(macTwo, macOne, ipOne, ipTwo, uint16(i), 2)))
		}
	}
	sent := map[uint16]int{}
	for range len(one.all) {
		l.sw.Cores()[0].Turn(l.now)
		for _, f := range l.sides["two"].take() {
			sent[be.Uint16(f[34:])]++
		}
		l.now += burstNs
	}
	require.Equal(t, map[uint16]int{0: burst, 1: burst, 2: burst, 3: burst}, sent)
}

// Each port has copies of its own, and those for the members of a station are not the ones for
// all: a flood takes neither away from others, nor answers from a shared address.
func TestMulticastOfEachPort(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Multicast = 100 })
	for range 200 {
		l.side("one").send(arpFrame(allStations, announceOf(macOne)))
		l.side("out").send(arpFrame(inet.Broadcast, inet.AnnounceARP(macOut, ipOut)))
	}
	l.turn()
	l.got()
	require.NotZero(t, l.drops("one")["multicast-rate"])
	require.NotZero(t, l.drops("out")["multicast-rate"])
	l.side("out").send(arpFrame(macShared, inet.ARP{Op: 2, SenderMAC: macOut, SenderIP: ipOut,
		TargetMAC: macShared, TargetIP: ipShared}))
	l.side("two").send(arpFrame(inet.Broadcast, inet.AnnounceARP(macTwo, ipTwo)))
	l.turn()
	got := l.got()
	require.Len(t, got["left"], 2)
	require.Len(t, got["right"], 2)
	require.Len(t, got["one"], 1)
	l.requireWhole()
}

// With no uplink programs are among themselves; of two uplinks each has its own.
func TestSegments(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Programs[1].Uplink = NoUplink
		c.Programs[3].Uplink = NoUplink
		c.Programs[2].Ports, c.Programs[3].Ports = nil, nil
	})
	l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
	l.sides["two"].send(segment(macShared, macTwo, ipTwo, ipShared, 1, 2),
		segment(macOut, macTwo, ipTwo, ipOut, 1, 2))
	l.sides["two"].send(arpFrame(allStations, announceOf(macTwo)))
	l.turn()
	require.Equal(t, "2xright out", names(l.got()))
	require.Equal(t, map[string]uint64{"no-station": 1}, l.drops("two"))
}

// A frame too long for its program is dropped for it.
func TestLongFrames(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Programs[1].MTU = 600 })
	f := append(segment(macTwo, macOne, ipOne, ipTwo, 1, 2), make([]byte, 600)...)
	l.goes("two", "one", f[:600+pmd.FrameOverhead])
	l.goes("", "one", f[:600+pmd.FrameOverhead+1])
	require.Equal(t, map[string]uint64{"too-long": 1}, l.drops("two"))
}

// A command that a core does is not its caller's to take back: a caller whose time is over then
// waits until it is done.
func TestCommandsThatAreLate(t *testing.T) {
	l := newLab(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	var taken bool
	go func() {
		over <- l.sw.each(ctx, func(c *Core) {
			taken = c.command.Load() == nil
			cancel()
		})
	}()
	require.Eventually(t, func() bool {
		l.turn()
		return ctx.Err() != nil
	}, patience, time.Millisecond)
	require.NoError(t, <-over)
	require.True(t, taken)
}

// A core takes in a turn what another may have sent it in one: a program with many queues does
// not fill the wire between them.
func TestWireIsEmptied(t *testing.T) {
	const queues, rounds = 6, 8
	l := newLab(t, func(c *Config) {
		c.Cores = 2
		c.Programs[0].Queues, c.Programs[1].Core = queues, 1
	})
	one, two := l.sides["one"], l.sides["two"]
	require.Len(t, one.all, queues)
	f := segment(macTwo, macOne, ipOne, ipTwo, 1, 2)
	got := 0
	for range rounds {
		for _, q := range one.all {
			for range burst {
				require.True(t, one.tries(q, f))
			}
		}
		for _, c := range l.sw.Cores() {
			c.Turn(l.now)
		}
		got += len(two.take())
	}
	require.Equal(t, rounds*queues*burst, got)
	require.Zero(t, l.sw.Cores()[0].stats.Drops[WireFull])
}
