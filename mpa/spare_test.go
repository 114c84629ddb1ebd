package mpa

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

const spareBufs = 8

// shortage is a rig whose Receiver leaves spareBufs free, and others that have taken Bufs of its
// pool.
type shortage struct {
	*rig
	others []mem.Buf
}

func newShortage(t *testing.T, mode Mode, s *stream) *shortage {
	t.Helper()
	cfg := rigConfig{Mode: mode, Reserve: &Reserve{Spare: spareBufs}, PoolExtra: spareBufs}
	return &shortage{rig: newRig(t, cfg, s)}
}

// leave lets the Receiver find n Bufs in the pool when the next segment, in a Buf of its own,
// comes.
func (r *shortage) leave(n int) {
	for r.pool.Available() > n+1 {
		r.others = append(r.others, r.pool.Alloc())
	}
	for r.pool.Available() < n+1 {
		r.pool.Free(r.others[0])
		r.others = r.others[1:]
	}
}

func (r *shortage) end() {
	r.pool.FreeN(r.others)
	r.others = nil
}

// With the pool short, what would wait for the rest of its frame is refused; it is taken when it
// comes again later.
func TestSpareRefusesWhatWouldBeHeld(t *testing.T) {
	for _, mode := range allModes {
		s := streamOf(mode, 300, 300, 300)
		f := s.frames
		for name, part := range map[string][2]int{
			"one octet":                 {0, 1},
			"front of a frame":          {0, 100},
			"whole frames and a front":  {0, int(f[1].end) + 50},
			"all but the last octet":    {0, len(s.octets) - 1},
			"beyond a gap":              {10, 200},
			"whole frames beyond a gap": {int(f[1].start), len(s.octets)},
		} {
			t.Run(fmt.Sprintf("%+v, %s", mode, name), func(t *testing.T) {
				r := newShortage(t, mode, s)
				r.leave(spareBufs - 1)
				for i := range 3 {
					r.send(part[0], part[1]).is(Refused).want()
					require.Equal(t, ReceiverStats{RefusedSpare: uint64(i + 1)}, r.recv.Stats())
					require.True(t, r.recv.Short())
				}
				r.end()
				r.send(part[0], part[1])
				require.NotEqual(t, Refused, r.verdict)
				if part[0] > 0 {
					r.send(0, part[0])
				}
				if part[1] < len(s.octets) {
					r.send(part[1], len(s.octets))
				}
				checkAll(t, r.rig)
			})
		}
	}
}

// Bufs are refused below Spare, not at it.
func TestSpareIsLeft(t *testing.T) {
	s := streamOf(withCRC, 300, 300)
	r := newShortage(t, withCRC, s)
	r.leave(spareBufs)
	r.send(0, 100).is(Kept)
	r.leave(spareBufs - 1)
	r.send(200, 300).is(Refused)
	r.leave(spareBufs)
	r.send(200, 300).is(Kept)
	require.EqualValues(t, 1, r.recv.Stats().RefusedSpare)
	r.end()
}

// However short the pool: whole frames in order are taken, and so is what makes held ones whole.
func TestSpareTakesWhatFreesBufs(t *testing.T) {
	for _, mode := range allModes {
		s := streamOf(mode, 300, 300, 300, 300)
		f := s.frames
		last := len(s.octets)
		for name, tc := range map[string]struct {
			held [][2]int // before the shortage
			part [2]int   // taken in it
			want []int    // passed in all
		}{
			"whole frames":              {nil, [2]int{0, int(f[1].end)}, []int{0, 1}},
			"the rest of a frame":       {[][2]int{{0, 100}}, [2]int{100, int(f[0].end)}, []int{0}},
			"the rest of one, and more": {[][2]int{{0, 100}}, [2]int{100, last}, []int{0, 1, 2, 3}},
			"after one octet of ULPDU_Length": {[][2]int{{0, int(f[0].end) + 1}},
				[2]int{int(f[0].end) + 1, last}, []int{0, 1, 2, 3}},
			"a gap": {[][2]int{{100, int(f[1].end)}}, [2]int{0, 100}, []int{0, 1}},
			"a gap in one frame": {[][2]int{{0, 100}, {200, int(f[0].end)}},
				[2]int{100, 200}, []int{0}},
			"a gap in front of a frame's rest": {[][2]int{{int(f[0].end) - 1, int(f[0].end)}},
				[2]int{0, int(f[0].end) - 1}, []int{0}},
			"a gap in front of a cut frame": {[][2]int{{100, int(f[1].end) + 50}}, [2]int{0, 100},
				[]int{0, 1}},
			"a gap that ends in ULPDU_Length": {[][2]int{{int(f[1].start) + 1, int(f[1].end)}},
				[2]int{0, int(f[1].start) + 1}, []int{0, 1}},
		} {
			if name == "a gap that ends in ULPDU_Length" || name == "after one octet of ULPDU_Length" {
				if head := mode.headOf(f[1].start); head != f[1].start {
					continue // a marker is cut
				}
			}
			t.Run(fmt.Sprintf("%+v, %s", mode, name), func(t *testing.T) {
				r := newShortage(t, mode, s)
				for _, h := range tc.held {
					r.send(h[0], h[1]).is(Kept)
				}
				r.leave(0)
				r.send(tc.part[0], tc.part[1]).is(Done)
				require.ElementsMatch(t, names(s, passedOf(s, tc.want)), names(s, r.got))
				require.Zero(t, r.recv.Stats().RefusedSpare)
				r.end()
			})
		}
	}
}

func passedOf(s *stream, frames []int) (ps []passed) {
	for _, i := range frames {
		ps = append(ps, s.frames[i])
	}
	return ps
}

// A lie that ends the stream, and with it what is held, is not refused.
func TestSpareLetsAStreamEnd(t *testing.T) {
	s := streamOf(withCRC, 300, 300)
	r := newShortage(t, withCRC, s)
	r.send(100, 200).is(Kept)
	r.leave(0)
	s.octets[0], s.octets[1] = 0xff, 0xff // more than mulpduMax
	r.send(0, 100).is(Done)
	require.Error(t, r.recv.Err())
	require.Zero(t, r.recv.Stats().HeldBufs)
	r.end()
}

// A peer that keeps its frames whole gets on whatever is held when the shortage comes, and
// however long that lasts.
func TestSpareNeverStopsAlignedPeers(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		mode := allModes[rng.IntN(len(allModes))]
		var sizes []int
		for range 40 {
			sizes = append(sizes, rng.IntN(700))
		}
		s := streamOf(mode, sizes...)
		r := newShortage(t, mode, s)
		var missing []int
		for i := range s.frames {
			if rng.IntN(3) == 0 {
				missing = append(missing, i)
				continue
			}
			r.send(int(s.frames[i].start), int(s.frames[i].end))
			if r.verdict == Refused {
				missing = append(missing, i)
			}
		}
		r.leave(0)
		for _, i := range missing {
			r.send(int(s.frames[i].start), int(s.frames[i].end))
			require.Equal(t, Done, r.verdict, "seed %d: frame %d in order", seed, i)
		}
		r.end()
		checkAll(t, r.rig)
	}
}
