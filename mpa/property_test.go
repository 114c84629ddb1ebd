package mpa

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomStream writes FPDUs of every kind of size.
func randomStream(rnd *rand.Rand, mode Mode, frames int) *stream {
	s := &stream{mode: mode}
	for i := range frames {
		n := 0
		switch rnd.IntN(10) {
		case 0:
			n = rnd.IntN(4)
		case 1:
			n = 480 + rnd.IntN(60)
		case 2, 3:
			n = rnd.IntN(4000)
		case 4:
			n = mode.MULPDU(1460)
		default:
			n = rnd.IntN(300)
		}
		s.add(ulpdu(i, n))
	}
	return s
}

type segment struct{ lo, hi int }

// pickBase is where a stream may begin as MPA counts: at its first octet, or so that 32 bits do
// not hold what follows.
func pickBase(i int) uint64 {
	return []uint64{0, 1<<32 - MarkerSpacing, 1<<32 - 7*MarkerSpacing}[i%3]
}

// randomSegments cuts n octets in one of several styles.
func randomSegments(rnd *rand.Rand, s *stream) []segment {
	var segs []segment
	style := rnd.IntN(4)
	for at := 0; at < len(s.octets); {
		k := 1
		switch style {
		case 0:
			k = 1 + rnd.IntN(1500)
		case 1:
			k = 1460
		case 2:
			k = 1 + rnd.IntN(20)
			if rnd.IntN(30) == 0 {
				k = 1000
			}
		case 3: // aligned, one to three FPDUs, if they fit into a Buf
			i := sort.Search(len(s.frames), func(i int) bool { return int(s.frames[i].end) > at })
			k = int(s.frames[min(i+rnd.IntN(3), len(s.frames)-1)].end) - at
			if k > 1460 {
				k = 1460
			}
		}
		k = min(k, len(s.octets)-at)
		segs = append(segs, segment{at, at + k})
		at += k
	}
	return segs
}

// disorder shuffles segments as a network does: some are late, or everything is anywhere.
func disorder(rnd *rand.Rand, segs []segment) {
	switch rnd.IntN(4) {
	case 0: // in order
	case 1: // wild, but within RunsMax
		for at := 0; at < len(segs); at += 50 {
			part := segs[at:min(at+50, len(segs))]
			rnd.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
		}
	case 2: // a few are late
		for range len(segs)/10 + 1 {
			i := rnd.IntN(len(segs))
			j := min(i+1+rnd.IntN(20), len(segs)-1)
			s := segs[i]
			copy(segs[i:j], segs[i+1:j+1])
			segs[j] = s
		}
	case 3: // backwards in runs
		for at := 0; at < len(segs); at += 30 {
			part := segs[at:min(at+30, len(segs))]
			for i, j := 0, len(part)-1; i < j; i, j = i+1, j-1 {
				part[i], part[j] = part[j], part[i]
			}
		}
	}
}

// deliver sends all segments; what is refused comes again after the others, as TCP does it. It
// checks the Delivery edge at every step.
func deliver(t *testing.T, r *rig, segs []segment) {
	have := make([]bool, len(r.s.octets)+1)
	left, asked := 0, false
	queue := append([]segment(nil), segs...)
	for rounds := 0; len(queue) > 0; rounds++ {
		var again []segment
		progress := false
		for _, g := range queue {
			inOrder := g.lo == left
			r.send(g.lo, g.hi)
			if r.verdict == Refused && inOrder && r.recv.drop && !asked {
				asked = true // once per stream: the first segment that is not whole
				r.insist(g.lo, g.hi)
			}
			if r.verdict == Refused {
				require.False(t, inOrder, "in-order octets refused: [%d,%d)", g.lo, g.hi)
				again = append(again, g)
				continue
			}
			progress = true
			for i := g.lo; i < g.hi; i++ {
				have[i] = true
			}
			for have[left] {
				left++
			}
			checkEdge(t, r, left)
		}
		require.True(t, progress, "deadlock: %d segments are refused for ever", len(queue))
		queue = again
	}
}

// checkEdge holds that every FPDU that ends at or before the Delivery edge has been passed, and
// no later one in order.
func checkEdge(t *testing.T, r *rig, left int) {
	e := r.deliverable(left)
	i := sort.Search(len(r.s.frames), func(i int) bool { return r.s.frames[i].end > uint64(left) })
	want := uint64(0)
	if i > 0 {
		want = r.s.frames[i-1].end
	}
	if r.recv.Err() == nil && min(e, uint64(left)) < want {
		t.Fatalf("left edge %d: Delivery edge %d, want at least %d", left, e, want)
	}
	if r.recv.next > r.base+uint64(left) {
		t.Fatalf("next %d is beyond the left edge %d", r.recv.next, left)
	}
}

// checkAll compares what was passed with the oracle: each FPDU once, the same octets.
func checkAll(t *testing.T, r *rig) {
	want, rest, err := naiveDecode(r.s.mode, r.s.octets)
	require.NoError(t, err)
	require.Zero(t, rest)
	require.NoError(t, r.recv.Err())
	got := append([]passed(nil), r.got...)
	ahead, octetsAhead := 0, 0
	next := uint64(0)
	seen := map[uint64]uint64{}
	for i, p := range got {
		require.Equal(t, p.start == next, r.inOrder[i], "InOrder of FPDU at %d", p.start)
		if !r.inOrder[i] {
			ahead++
			octetsAhead += len(p.ulpdu)
		}
		seen[p.start] = p.end
		for e, ok := seen[next]; ok; e, ok = seen[next] {
			next = e
		}
	}
	sort.Slice(got, func(i, j int) bool { return got[i].start < got[j].start })
	require.Equal(t, want, got)
	st := r.recv.Stats()
	octets, directs := uint64(0), 0
	for _, p := range got {
		octets += uint64(len(p.ulpdu))
	}
	for _, d := range r.direct {
		if d {
			directs++
		}
	}
	require.EqualValues(t, len(want), st.FPDUs)
	require.EqualValues(t, directs, st.Direct)
	require.EqualValues(t, len(want)-directs, st.Reassembled)
	require.EqualValues(t, ahead, st.OutOfOrder)
	require.EqualValues(t, octetsAhead, st.BytesOutOfOrder)
	require.Equal(t, octets, st.BytesDirect+st.BytesReassembled)
	r.held(0)
	require.Empty(t, r.recv.runs)
}

// seeded runs f from so many seeds, fewer of them under -short. salt tells one test's dice from
// another's.
func seeded(t *testing.T, rounds int, salt uint64, f func(t *testing.T, rnd *rand.Rand)) {
	if testing.Short() {
		rounds = min(rounds, 100)
	}
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f(t, rand.New(rand.NewPCG(seed, salt)))
		})
	}
}

// Any segmentation in any order gives what an in-order receiver gives, each FPDU once, and all
// Bufs come back.
//
// req: D01-5.4.1-1, D01-5.4.1-2, D01-5.1-15, D01-5.1-16, 5044-5.1-5
// req: C02-7.4.1-1, C02-7.4.1-2, C02-7.1-13, C02-7.1-14, C02-5.2-9
func TestReceiverAgainstOracle(t *testing.T) {
	seeded(t, 600, 7, func(t *testing.T, rnd *rand.Rand) {
		mode := allModes[rnd.IntN(len(allModes))]
		s := randomStream(rnd, mode, 1+rnd.IntN(60))
		stride := []int{1664, 2048, 9344}[rnd.IntN(3)]
		cfg := rigConfig{Mode: mode, Stride: stride, DropBadCRC: rnd.IntN(2) == 0,
			Base: pickBase(rnd.IntN(3))}
		if rnd.IntN(2) == 0 {
			cfg.BufsMax = BufsMin(stride) + rnd.IntN(8)
		}
		r := newRig(t, cfg, s)
		if rnd.IntN(2) == 0 {
			r.pos = rnd.IntN(100)
		}
		segs := randomSegments(rnd, s)
		disorder(rnd, segs)
		deliver(t, r, segs)
		checkAll(t, r)
		require.LessOrEqual(t, r.recv.Stats().HeldBufsPeak, uint64(cap(r.recv.heldBufs)-1))
	})
}

// sendCorrupted sends all segments, one of them with a wrong bit, and again whatever was refused.
func sendCorrupted(t *testing.T, r *rig, s *stream, segs []segment, rnd *rand.Rand) {
	bad := rnd.IntN(len(segs))
	at := segs[bad].lo + rnd.IntN(segs[bad].hi-segs[bad].lo)
	var again []segment
	for i, g := range segs {
		bit := byte(1) << rnd.IntN(8)
		if i == bad {
			s.octets[at] ^= bit
		}
		if r.send(g.lo, g.hi); r.verdict == Refused {
			again = append(again, g)
		}
		if i == bad {
			s.octets[at] ^= bit
		}
	}
	for rounds := 0; len(again) > 0 && rounds < 100; rounds++ {
		slices.SortFunc(again, func(a, b segment) int { return a.lo - b.lo }) // as a sender would
		queue := again
		again = nil
		for _, g := range queue {
			if r.send(g.lo, g.hi); r.verdict == Refused {
				again = append(again, g)
			}
		}
	}
	require.Empty(t, again)
}

// A segment is corrupted on its way once. Under the drop policy, if every FPDU lies within one
// segment, it is not noticed; otherwise, or without it, the Receiver stops with an error and has
// passed nothing wrong.
func TestCorruptionAgainstOracle(t *testing.T) {
	seeded(t, 400, 8, func(t *testing.T, rnd *rand.Rand) {
		mode := []Mode{withCRC, both}[rnd.IntN(2)]
		s := randomStream(rnd, mode, 20)
		r := newRig(t, rigConfig{Mode: mode, DropBadCRC: rnd.IntN(2) == 0}, s)
		segs := randomSegments(rnd, s)
		disorder(rnd, segs)
		sendCorrupted(t, r, s, segs, rnd)
		want, _, err := naiveDecode(mode, s.octets)
		require.NoError(t, err)
		byStart := map[uint64]passed{}
		for _, p := range want {
			byStart[p.start] = p
		}
		for _, p := range r.got {
			require.Equal(t, byStart[p.start], p, "passed something that was not sent")
			delete(byStart, p.start)
		}
		if r.recv.Err() == nil && len(byStart) == 0 {
			checkAll(t, r)
			return
		}
		// Either an error, or a length grew and the Receiver waits for octets that will not come.
		r.recv.Close()
		r.held(0)
	})
}

// The peer's own mistake, under good CRCs: the Receiver in order stops exactly where the oracle
// does.
func TestBadPeerInOrderAgainstOracle(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		mode := allModes[rnd.IntN(len(allModes))]
		s := randomStream(rnd, mode, 15)
		for range 1 + rnd.IntN(3) {
			s.octets[rnd.IntN(len(s.octets))] ^= 1 << rnd.IntN(8)
		}
		if mode.CRC && rnd.IntN(2) == 0 {
			for i := range s.frames {
				s.reseal(i)
			}
		}
		want, rest, err := naiveDecode(mode, s.octets)
		r := newRig(t, rigConfig{Mode: mode}, s)
		segs := randomSegments(rnd, s)
		for _, g := range segs {
			r.send(g.lo, g.hi)
			require.NotEqual(t, Refused, r.verdict)
		}
		require.Equal(t, want, r.got, "seed %d", seed)
		switch err {
		case nil:
			require.NoError(t, r.recv.Err(), "seed %d", seed)
			require.Equal(t, uint64(len(s.octets)-rest), r.recv.Edge(uint64(len(s.octets))))
		case errOracleCRC:
			r.failed(ErrCRC)
		case errOracleMarker:
			r.failed(ErrMarker)
		}
		r.recv.Close()
		r.held(0)
	}
}
