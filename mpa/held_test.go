package mpa

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// One octet at a time, in every mode: nothing is refused at the documented minimum, and the Bufs
// held are bounded by octets over stride.
//
// req: D01-5.4.1-1
func TestOneOctetSegmentsInOrder(t *testing.T) {
	for _, mode := range allModes {
		s := streamOf(mode, 20000, 0, 3, 700)
		r := newRig(t, rigConfig{Mode: mode, BufsMax: BufsMin(2048)}, s)
		for at := range s.octets {
			r.send(at, at+1)
			require.NotEqual(t, Refused, r.verdict)
			require.Equal(t, r.recv.next, r.recv.Edge(uint64(at+1)))
		}
		r.want(0, 1, 2, 3).held(0)
		require.EqualValues(t, 10, r.recv.Stats().HeldBufsPeak) // 20000/2048
	}
}

// Whatever fills the budget, in-order octets find room: the largest FPDU comes in segments that
// pack worst, with the budget beyond the gap used up.
func TestInOrderAlwaysFindsRoom(t *testing.T) {
	for _, stride := range []int{512, 1664, 2048, 9344} {
		for extra := range 3 {
			bufs := BufsMin(stride) + extra
			s := streamOf(withCRC, mulpduMax, mulpduMax, 10)
			r := newRig(t, rigConfig{Mode: withCRC, Stride: stride, BufsMax: bufs, PoolExtra: 4}, s)
			r.pos = 0
			// Beyond a gap: segments that do not touch, until one is refused.
			first := int(s.frames[0].end)
			at := first + 100
			for r.send(at, at+20); r.verdict == Kept; r.send(at, at+20) {
				at += 40
			}
			r.is(Refused)
			require.EqualValues(t, 1, r.recv.Stats().RefusedBudget)
			require.EqualValues(t, extra, r.recv.Stats().HeldBufs)
			// In order: a short and a long segment that just do not fit into one slot, again and again.
			lo := 0
			for i := 0; lo < first; i++ {
				n := 1
				if i%2 == 1 {
					n = stride
				}
				hi := min(lo+n, first)
				r.send(lo, hi)
				require.NotEqual(t, Refused, r.verdict)
				lo = hi
			}
			r.want(0).edge(first, first)
			require.LessOrEqual(t, r.recv.Stats().HeldBufsPeak, uint64(bufs))
			// What was refused comes again; the gap closes around what is held.
			for lo < len(s.octets) {
				hi := min(lo+40, len(s.octets))
				if extra > 0 && lo >= first && lo < at {
					k := (lo - first - 100) % 40
					switch {
					case lo < first+100:
						hi = first + 100
					case k < 20 && (lo-first-100)/40 < extra:
						lo += 20 - k
						continue
					case (lo-first-100)/40 < extra:
						hi = lo + 40 - k
					}
				}
				r.send(lo, hi)
				require.NotEqual(t, Refused, r.verdict, "at %d", lo)
				lo = hi
			}
			r.want(1, 2).held(0)
		}
	}
}

// What costs no Buf is taken with the budget used up: whole FPDUs beyond the gap, and octets that
// fit after held ones.
func TestFullBudgetStillPassesAndCoalesces(t *testing.T) {
	s := streamOf(both, 100, 600, 600, 600, 600)
	r := newRig(t, rigConfig{Mode: both, BufsMax: BufsMin(2048) + 1}, s)
	f := s.frames
	r.send(int(f[1].start), int(f[1].start)+60).is(Kept).held(1)
	r.send(int(f[1].start)+60, int(f[1].start)+200).is(Kept).held(1) // took the other's octets over
	r.send(int(f[2].start), int(f[2].end)).is(Done).want(2)
	r.send(int(f[3].start), int(f[3].end)-1).is(Refused).held(1)
	r.send(int(f[3].start), int(f[3].end)).is(Done).want(3)
	r.send(0, int(f[0].end)).is(Done).want(0).held(1) // now in order
	r.send(int(f[4].start), int(f[4].end)-1).is(Kept).held(2)
	r.send(int(f[1].start)+200, int(f[1].end)).is(Done).want(1).held(1)
	r.send(int(f[4].end)-1, int(f[4].end)).is(Done).want(4).held(0)
	require.EqualValues(t, 1, r.recv.Stats().Coalesced)
	require.EqualValues(t, 60, r.recv.Stats().BytesCoalesced, "the smaller part is copied")
}

// With the budget used up, octets in front of held ones that would be passed in part, and leave a
// part on both sides, need a Buf more.
func TestFullBudgetWithPartsOnBothSides(t *testing.T) {
	s := streamOf(both, 500, 600, 600)
	r := newRig(t, rigConfig{Mode: both, BufsMax: BufsMin(2048) + 1}, s)
	f := s.frames
	mid := int(f[1].end) - 20
	r.send(mid, int(f[2].end)-10).is(Kept).want().held(1) // no marker of FPDU 2 in the part after
	require.False(t, r.recv.runs[0].passed())
	r.send(int(f[1].start)-30, mid).is(Refused).want().held(1)
	require.EqualValues(t, 1, r.recv.Stats().RefusedBudget)
	r.send(0, int(f[1].start)-30).is(Kept).held(2)
	r.send(int(f[1].start)-30, mid).is(Done).want(0, 1).held(1)
	r.send(int(f[2].end)-10, int(f[2].end)).is(Done).want(2).held(0)
}

// Neighbours that fill a slot to the last octet are made one, one octet more is not.
func TestCoalesceFillsTheSlot(t *testing.T) {
	for extra := range 2 {
		s := streamOf(withCRC, 5000)
		r := newRig(t, rigConfig{Mode: withCRC}, s)
		r.send(0, 1000).send(1000, 2048+extra)
		r.held(1 + extra)
		r.send(2048+extra, len(s.octets)-1000).send(len(s.octets)-1000, len(s.octets)).want(0).held(0)
	}
}

func TestRunsMax(t *testing.T) {
	s := streamOf(withMarker, 40000, 100)
	r := newRig(t, rigConfig{Mode: withMarker}, s)
	at := 1000
	for range RunsMax {
		r.send(at, at+2).is(Kept)
		at += 100
	}
	r.send(at, at+2).is(Refused)
	require.EqualValues(t, 1, r.recv.Stats().RefusedRuns)
	r.send(at-98, at).is(Kept) // joins one
	r.send(0, 4).is(Kept)      // in order
	r.send(at+2, at+4).is(Refused)
	for lo := 4; lo < len(s.octets); {
		hi := lo + 1
		for hi < len(s.octets) && hi%50 != 0 {
			hi++
		}
		for _, i := range r.recv.runs {
			if int(i.lo) > lo && int(i.lo) < hi {
				hi = int(i.lo)
			}
		}
		r.send(lo, hi)
		require.NotEqual(t, Refused, r.verdict)
		lo = max(hi, int(r.recv.runs0()))
	}
	r.want(0, 1).held(0)
}

// runs0 is the end of the in-order octets.
func (r *Receiver) runs0() uint64 {
	if len(r.runs) > 0 && r.runs[0].lo == r.next {
		return r.runs[0].hi
	}
	return r.next
}

func TestInitPanics(t *testing.T) {
	p := newPool(t, 8, 2048)
	var r Receiver
	require.Panics(t, func() { r.Init(ReceiverConfig{Pool: p, BufsMax: BufsMin(2048) - 1}) })
	require.Panics(t, func() {
		r.Init(ReceiverConfig{Pool: p, BufsMax: 100, Scratch: make([][]byte, 10)})
	})
	require.Panics(t, func() { r.Init(ReceiverConfig{Pool: p, BufsMax: 100, Room: NewRoom(99)}) })
}

// Receivers of one goroutine may share their scratch.
func TestSharedScratch(t *testing.T) {
	s := streamOf(both, 3000, 700)
	scratch := make([][]byte, PiecesMax(BufsMin(2048)))
	p := newPool(t, 10, 2048)
	a, b := newRig(t, rigConfig{}, s), newRig(t, rigConfig{}, s)
	for _, r := range []*rig{a, b} {
		r.pool, r.poolSize = p, 10
		r.recv.Init(ReceiverConfig{Mode: both, Pool: p, BufsMax: BufsMin(2048), Scratch: scratch})
	}
	for at := 0; at < len(s.octets); at += 500 {
		end := min(at+500, len(s.octets))
		a.send(at, end)
		b.send(at, end)
	}
	a.want(0, 1).held(0)
	b.want(0, 1).held(0)
}

// PiecesMax holds for the largest FPDU with markers in segments that cut it as often as can be.
func TestPiecesMax(t *testing.T) {
	s := streamOf(both, mulpduMax)
	r := newRig(t, rigConfig{Mode: both, Stride: 256, BufsMax: BufsMin(256)}, s)
	r.pos = 0
	base := cap(r.recv.pieces)
	for lo, i := 0, 0; lo < len(s.octets); i++ {
		hi := min(lo+[]int{1, 256}[i%2], len(s.octets))
		r.send(lo, hi)
		require.NotEqual(t, Refused, r.verdict)
		lo = hi
	}
	r.want(0).held(0)
	require.Equal(t, base, cap(r.recv.pieces))
}

// The invariants that the structures promise, under random octets in random order.
func TestStructuresHoldTheirInvariants(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		mode := allModes[rnd.IntN(4)]
		s := randomStream(rnd, mode, 30)
		r := newRig(t, rigConfig{Mode: mode, Stride: 1664}, s)
		segs := randomSegments(rnd, s)
		disorder(rnd, segs)
		for _, g := range segs {
			r.send(g.lo, g.hi)
			r.invariants(seed)
		}
		r.recv.Close()
		r.held(0)
	}
}

func (r *rig) invariants(seed uint64) {
	r.t.Helper()
	v := &r.recv
	covered := func(off uint64) bool {
		i := v.find(off)
		return i >= 0 && off < v.heldBufs[i].end()
	}
	last := uint64(0)
	for k, s := range v.runs {
		require.True(r.t, s.lo < s.hi && s.lo >= v.next && (k == 0 || s.lo > last), "seed %d: runs %+v",
			seed, v.runs)
		require.True(r.t, !s.passed() || s.lo <= s.passLo && s.passHi <= s.hi && s.lo != v.next,
			"seed %d: run %+v", seed, s)
		for off := s.lo; off < s.hi; off++ {
			if s.passed() && off >= s.passLo && off < s.passHi {
				continue
			}
			if !covered(off) {
				r.t.Fatalf("seed %d: octet %d of run %+v is not held", seed, off, s)
			}
		}
		last = s.hi
	}
	for k := range v.heldBufs {
		h := &v.heldBufs[k]
		for _, s := range v.runs {
			outside := h.end() <= s.passLo || h.off >= s.passHi || h.off < s.passLo && h.end() > s.passHi
			require.True(r.t, !s.passed() || outside, "seed %d: hold %+v keeps octets that were passed: %+v",
				seed, *h, s)
		}
		require.True(r.t, h.n > 0 && h.pos+h.n <= uint32(v.stride), "seed %d: hold %+v", seed, *h)
		require.True(r.t, k == 0 || v.heldBufs[k-1].end() <= h.off, "seed %d: holds overlap", seed)
		require.Equal(r.t, r.s.octets[h.off:h.end()], v.held(h, h.off, h.end()),
			"seed %d: octets of hold at %d", seed, h.off)
	}
	require.Equal(r.t, r.poolSize-len(v.heldBufs), r.pool.Available(), "seed %d", seed)
}

// Every tenth segment of an aligned stream comes late: with markers nothing is kept meanwhile,
// without them all that came since. Where the segments do not begin with FPDUs, both keep some.
//
// req: C02-13.1.1-1, D01-11.2-1
func TestMarkersCutWhatIsHeld(t *testing.T) {
	peak := func(mode Mode, aligned bool) uint64 {
		s := &stream{mode: mode}
		for i := range 40 {
			s.add(ulpdu(i, mode.MULPDU(1460)))
		}
		r := newRig(t, rigConfig{Mode: mode}, s)
		var late []segment
		for i, lo := 0, 0; lo < len(s.octets); i++ {
			g := segment{lo, min(lo+1000, len(s.octets))}
			if aligned {
				g.hi = int(s.frames[i].end)
			}
			if lo = g.hi; i%10 == 3 {
				late = append(late, g)
				continue
			}
			r.send(g.lo, g.hi)
			if i%10 == 9 && len(late) > 0 {
				r.send(late[0].lo, late[0].hi)
				late = late[1:]
			}
		}
		for _, g := range late {
			r.send(g.lo, g.hi)
		}
		checkAll(t, r)
		return r.recv.Stats().HeldBufsPeak
	}
	require.Zero(t, peak(both, true))
	require.Equal(t, uint64(6), peak(withCRC, true))
	marked, unmarked := peak(both, false), peak(withCRC, false)
	require.Positive(t, marked)
	require.LessOrEqual(t, marked, unmarked)
}
