package stack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// How many segments an Upper fills at once changes no octet of what leaves, and when: with units
// that end in the middle, small and large windows, losses, a link that takes less than it is
// offered, few Bufs.
func TestVectorsLeaveTheSameFrames(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	ran := 0
	for i := range uint64(20) {
		one, _ := framesOf(t, seed+i, nil)
		many, n := framesOf(t, seed+i, func(n int) int { return n })
		require.True(t, slices.EqualFunc(one, many, bytes.Equal), "seed %d: %d and %d frames", seed+i,
			len(one), len(many))
		ran += n
	}
	require.Greater(t, ran, 1000, "seed %d", seed)
}

// framesOf is what a's end of a connection puts on the link, as seed has it, and how many of them
// in vectors of several.
func framesOf(t *testing.T, seed uint64, vectors func(int) int) (frames [][]byte, ran int) {
	r := rand.New(rand.NewPCG(seed, 1))
	// A VLAN, or not; small and large windows, units, losses, Pools.
	window, vlan, unit, loss, spare := 20_000+r.IntN(2_000_000), uint16(r.IntN(2)*5),
		uint64(1+r.IntN(60_000)), r.IntN(3), 10+r.IntN(300)
	l := offloaded(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		cfg.TCP.ReceiveWindow, cfg.VLAN, cfg.Secret = window, vlan, [16]byte{byte(i + 1)}
		cfg.TCP.NoTimestamps = seed%2 == 0
		if seed%3 == 0 {
			cfg.BurstMax, cfg.PendingMax = 8, 24
		}
		if seed%5 == 0 {
			cfg.BufShare = 1
		}
	})
	l.vectors = vectors
	var u, v *peer
	if r.IntN(2) == 0 {
		u, v = l.open()
	} else {
		u, v = l.open6()
		u.vectors, v.vectors = vectors, vectors
	}
	u.unit = unit
	var kept []mem.Buf
	if seed%4 == 3 { // few Bufs
		b := l.a.Budget()
		kept = make([]mem.Buf, max(0, l.a.pool.Available()-b.Reserve-b.Proven-spare))
		l.a.pool.AllocN(kept)
	}
	l.a.nic.lose = func(f []byte) bool {
		frames = append(frames, bytes.Clone(f))
		return r.IntN(100) < loss
	}
	for range 6 {
		l.a.nic.txMax = []int{-1, -1, -1, 3, 20}[r.IntN(5)]
		if r.IntN(3) == 0 {
			l.a.neighbours.Clear() // the next hop has to be asked for
		}
		u.send(r.IntN(300_000))
		l.until(fmt.Sprint("seed ", seed), func() bool { return v.edge == u.toSend })
	}
	l.a.nic.lose = nil
	l.a.pool.FreeN(kept)
	l.stop()
	return frames, u.ran
}

// A vector is no longer than what its connection may send in this Turn. (That what the Upper does
// not fill comes back to the Pool is looked at when the lab stops.)
func TestVectorsKeepToTheShareOfATurn(t *testing.T) {
	for _, share := range []int{2, 7, 40} {
		l := offloaded(t, func(i int, cfg *Config) { cfg.SegmentsMax, cfg.TCP.InitialWindow = share, 60 })
		l.vectors = func(n int) int { return (n + 1) / 2 }
		u, _ := l.open()
		l.a.Turn()
		before := l.a.counters().Segments
		u.send(100 * 1448)
		l.a.Turn()
		require.EqualValues(t, share, l.a.counters().Segments-before)
		require.Equal(t, share > 2, u.ran > 0)
		l.stop()
	}
}

// What an Upper says of a connection that waits for its turn holds from its next segment on, also
// when that leaves in the same Turn, with octets like those before.
func TestSegmentsChangeWithinATurn(t *testing.T) {
	for _, run := range vectors[:2] {
		l := offloaded(t, func(i int, cfg *Config) {
			cfg.BurstMax, cfg.PendingMax = 8, 64
			cfg.TCP.InitialWindow, cfg.TCP.ReceiveWindow = 200, 1<<20
		})
		l.vectors = run
		l.listen(l.b, 7, 16)
		u, w := l.dial(l.a, l.b, 7), l.dial(l.a, l.b, 7)
		l.until("open", func() bool { return len(l.accepted) == 2 })
		before, sent, told := l.a.counters().Segments, 0, 0
		w.onPull = func() {
			u.conn.SetTOS(0xb8)
			told = int(l.a.counters().Segments - before)
		}
		l.a.nic.onSend = func(f []byte) {
			s, payload, ok := segmentOf(f)
			if !ok || s.SrcPort != u.conn.Local().Port() || len(payload) == 0 {
				return
			}
			sent++
			require.Equal(t, sent > told, f[inet.EthernetLen+1] == 0xb8, "segment %d, told after %d", sent,
				told)
		}
		u.send(200 * 1448)
		w.send(0) // it is asked, and has nothing
		l.a.Turn()
		require.Positive(t, told)
		require.Greater(t, sent, told, "nothing was sent after the change")
		l.a.nic.onSend = nil
		l.until("there", func() bool { return l.accepted[0].edge == u.toSend })
		l.stop()
	}
}

// inCallbacks does something in the middle of vectors.
type inCallbacks struct {
	*peer
	pulled, arrived func()
}

func (b *inCallbacks) Pull(dst [][]byte) Pulled {
	defer b.pulled()
	return b.peer.Pull(dst)
}

func (b *inCallbacks) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (int, Verdict) {
	defer b.arrived()
	return b.peer.Arrive(off, bufs, data)
}

// An Upper may abort, give way to another, or change its window from within a call, and keep or
// refuse what it is offered. Every Buf comes back, which is looked at when the lab
// stops.
func TestCallsFromWithinCalls(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for seed := base; seed < base+100; seed++ {
		r := rand.New(rand.NewPCG(seed, 9))
		l := offloaded(t, func(i int, cfg *Config) { cfg.TCP.InitialWindow = 60 })
		l.vectors = func(n int) int { return r.IntN(n + 1) }
		u, v := l.open()
		left := 1 + r.IntN(5)
		act := func(p *peer) func() {
			return func() {
				if left--; left != 0 {
					return
				}
				[]func(){
					p.conn.Abort, func() { p.conn.SetUpper(p) }, func() { p.conn.SetReceiveWindow(3000) },
				}[r.IntN(3)]()
			}
		}
		nothing := func() {}
		ends := []*inCallbacks{{u, act(u), nothing}, {v, nothing, act(v)}}[r.IntN(2):]
		for _, b := range ends {
			b.conn.SetUpper(b)
		}
		v.verdict = func(uint64, int) Verdict {
			return []Verdict{Taken, Taken, Taken, Taken, Taken, Kept, Refused}[r.IntN(7)]
		}
		u.send(150_000)
		l.until(fmt.Sprint("the end, seed ", seed), func() bool {
			return v.edge == u.toSend || u.closed > 0 || v.closed > 0
		})
		v.verdict = nil
		l.b.pool.FreeN(v.kept)
		l.stop()
	}
}

// Bufs that are not filled are the Pool's again, and the one that was freed last is the next one
// still.
func TestUnfilledBufsAreNextAgain(t *testing.T) {
	l, u, v := offloaded(t, func(i int, cfg *Config) { cfg.TCP.InitialWindow = 200 }).opened()
	bufs := &l.a.sender.pulling.bufs
	next, many := mem.NoBuf, 0
	u.vectors = func(n int) int { // fills one, however many it is given
		if next != mem.NoBuf {
			require.Equal(t, next, bufs[0])
			many++
		}
		if next = mem.NoBuf; n > 1 {
			next = bufs[1]
		}
		return 1
	}
	u.send(40 * 1448)
	l.a.Turn()
	require.Greater(t, many, 10)
	l.until("there", func() bool { return v.edge == u.toSend })
}
