package vswitch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// narrow is a device that takes so many octets, and no more until it is given more.
type narrow struct {
	pmd.Port
	left *int
}

type narrowQueue struct {
	pmd.Queue
	pool *mem.Pool
	left *int
}

func (n narrow) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	q, err := n.Port.Open(i, pool)
	return &narrowQueue{q, pool, n.left}, err
}

func (q *narrowQueue) Tx(bufs []mem.Buf) int {
	for i, b := range bufs {
		if *q.left <= 0 || q.Queue.Tx(bufs[i:i+1]) == 0 {
			return i
		}
		*q.left -= int(q.pool.Desc(b).Len)
	}
	return len(bufs)
}

// share is a source of the tests: how long its frames are, and how many it sends in a turn.
type share struct {
	name   string
	octets int
	every  float64 // frames in a turn; 0: as many as it can
	due    float64 // of the next one: a phase
}

// contended has sources send to out for so many turns, of which the uplink takes so many octets
// each. It returns what each has sent and what came of it, in octets.
func contended(t testing.TB, cores, turns, octets int,
	sources []*share) (sent, came map[string]int, l *lab) {
	left := 0
	l = newLab(t, func(c *Config) {
		c.Cores = cores
		c.Uplinks[0].Port, c.Uplinks[0].Buffers = narrow{c.Uplinks[0].Port, &left}, 256
		for i := range c.Programs {
			c.Programs[i].Core = i % cores
		}
	})
	macs := map[string]inet.MAC{"one": macOne, "two": macTwo, "left": macShared, "tagged": macTagged}
	ips := map[string]inet.Addr{"one": ipOne, "two": ipTwo, "left": ipShared, "tagged": ipTagged}
	sent, came = map[string]int{}, map[string]int{}
	who := map[inet.MAC]string{}
	frames := map[string][]byte{}
	for _, s := range sources {
		who[macs[s.name]] = s.name
		f := segment(macOut, macs[s.name], ips[s.name], ipOut, 1000, 9)
		s.octets = max(s.octets, len(f))
		frames[s.name] = append(f, make([]byte, s.octets-len(f))...)
	}
	for range turns {
		left = min(left, 0) + octets
		for _, s := range sources {
			side := l.sides[s.name]
			if s.every == 0 {
				for n := 0; n < 64 && side.tries(side.q, frames[s.name]); n++ {
				}
				continue
			}
			for s.due += s.every; s.due >= 1; s.due-- {
				side.send(frames[s.name])
				sent[s.name] += s.octets
			}
		}
		l.now += 1000
		for _, c := range l.sw.Cores() {
			c.Turn(l.now)
		}
		for _, f := range l.uplink.take() {
			e, _, _ := inet.ParseEthernet(f)
			came[who[e.Src]] += len(f)
		}
	}
	for range 2000 { // what waits, with the flooders' last
		left = octets
		l.turn()
		for _, f := range l.uplink.take() {
			e, _, _ := inet.ParseEthernet(f)
			if s := who[e.Src]; sent[s] > 0 {
				came[s] += len(f)
			}
		}
	}
	l.requireWhole()
	return sent, came, l
}

// A program that sends less than its share of a full uplink loses nothing, whatever others send,
// how long their frames are, in which phase and from which core.
func TestLessThanAShareIsNotLost(t *testing.T) {
	r := newRand(t)
	for range sample.Count(6, 40) {
		lengths := []int{60, 200, 1000, 1514}
		flood := func(name string) *share { return &share{name: name, octets: lengths[r.IntN(4)]} }
		names := []string{"one", "two", "left"} // in the order in which they are polled
		r.Shuffle(3, func(i, j int) { names[i], names[j] = names[j], names[i] })
		quiet := &share{name: names[0], octets: lengths[r.IntN(4)], due: r.Float64()}
		sources := []*share{quiet, flood(names[1]), flood(names[2])}[:2+r.IntN(2)]
		octets := burst / 2 * sources[1].octets                    // half of what one of them sends
		quiet.every = float64(octets) / 64 / float64(quiet.octets) // 1/64 of the uplink
		r.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		cores := 1 + r.IntN(2)
		sent, came, l := contended(t, cores, 500, octets, sources)
		require.Equal(t, sent[quiet.name], came[quiet.name], "%+v, %d cores, beside %+v", *quiet,
			cores, sources)
		full := l.stats("out").Drops[Full]
		for _, c := range l.sw.Cores() {
			full += c.stats.Drops[WireFull]
		}
		for _, s := range sources {
			full += l.stats(s.name).Throttled
		}
		require.NotZero(t, full, "the uplink was full")
	}
}

// Programs that always send get the same octets of a full uplink, however long their frames are.
func TestFloodersShareByOctets(t *testing.T) {
	r := newRand(t)
	for range sample.Count(3, 20) {
		var sources []*share
		for _, name := range []string{"one", "two", "left"} {
			// a burst is more than its share
			sources = append(sources, &share{name: name, octets: 120 + r.IntN(1395)})
		}
		octets := 1514 * (1 + r.IntN(6))
		_, came, _ := contended(t, 1, 600, octets, sources)
		sum, squares := 0., 0.
		for _, s := range sources {
			x := float64(came[s.name])
			sum, squares = sum+x, squares+x*x
		}
		require.Greater(t, sum*sum/3/squares, 0.99, "Jain's index: %v of %+v", came, sources)
		require.InDelta(t, 600*octets, sum, float64(600*octets)/20, "the uplink is used")
	}
}

// So it is where a program's Receive rate is what is full, instead of its queue.
func TestReceiveRateIsShared(t *testing.T) {
	r := newRand(t)
	l := newLab(t, func(c *Config) { c.Programs[2].Receive.Octets = 10_000_000 })
	quiet := segment(macShared, macOne, ipOne, ipShared, 9, 1000)
	flood := append(segment(macShared, macTwo, ipTwo, ipShared, 9, 1000), make([]byte, 1000)...)
	phase := r.IntN(8)
	sent, got, octets := 0, 0, 0
	count := func() {
		for _, f := range l.sides["left"].take() {
			octets += len(f)
			if e, _, _ := inet.ParseEthernet(f); e.Src == macOne {
				got++
			}
		}
	}
	const turns = 4000 // of 100 us
	for i := range turns {
		for n := 0; n < 8 && l.sides["two"].tries(l.sides["two"].q, flood); n++ {
		}
		if i%8 == phase {
			l.sides["one"].send(quiet)
			sent++
		}
		l.now += 1e5
		l.sw.Cores()[0].Turn(l.now)
		count()
	}
	require.NotZero(t, l.stats("left").Drops[Over])
	require.InDelta(t, 4_000_000, octets, 200_000, "0.4 s")
	for range 1000 {
		l.now += 1e6
		l.sw.Cores()[0].Turn(l.now)
		count()
	}
	require.Equal(t, sent, got)
}

// Whatever is put in, chosen and evicted: each source's frames come in order, none is lost, and
// what is evicted is of a source that has at least half as many as any.
func TestOutgoingRandomly(t *testing.T) {
	r := newRand(t)
	cfg := mem.PoolConfig{Bufs: 512, Stride: 2048}
	pool := must(mem.NewPool(hugepages.Heap(cfg.Bytes()+4096), cfg))(t)
	for range sample.Count(20, 200) {
		c := &Core{pool: pool, next: make([]mem.Buf, pool.Size())}
		o := newOutgoing()
		n := 1 + r.IntN(20)
		o.sources(n)
		oracle := make([][]mem.Buf, n)
		took := func(b mem.Buf) {
			for s := range oracle {
				if len(oracle[s]) > 0 && oracle[s][0] == b {
					oracle[s] = oracle[s][1:]
					pool.Free(b)
					return
				}
			}
			require.Fail(t, "not the oldest of a source")
		}
		waiting := func() (all, most int) {
			for _, f := range oracle {
				all, most = all+len(f), max(most, len(f))
			}
			return all, most
		}
		for range 2000 {
			switch all, most := waiting(); r.IntN(5) {
			case 0, 1, 2:
				b := pool.Alloc()
				if b == mem.NoBuf {
					continue
				}
				s := min(r.IntN(n), r.IntN(n))
				pool.Desc(b).Len = 60 + r.Uint32N(1455)
				o.put(c, slot(s), b, 1522)
				oracle[s] = append(oracle[s], b)
			case 3:
				b, ok := o.choose(c, 1522)
				require.Equal(t, all > 0, ok)
				if ok {
					took(b)
				}
			case 4:
				require.Equal(t, class(int32(most)), max(o.longest(), 0))
				if all == 0 {
					continue
				}
				b := o.evict(c)
				for s := range oracle {
					if len(oracle[s]) > 0 && oracle[s][0] == b {
						require.GreaterOrEqual(t, 2*len(oracle[s]), most)
					}
				}
				took(b)
			}
		}
		for b, ok := o.choose(c, 1522); ok; b, ok = o.choose(c, 1522) {
			took(b)
		}
		require.Equal(t, noSlot, o.head)
		require.Zero(t, o.filled)
		require.Equal(t, pool.Size(), pool.Available())
	}
}
