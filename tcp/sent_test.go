package tcp

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// The list of what was sent again, against a slice: in the order of sending, whatever is marked,
// cut or acknowledged.
func TestSentRingAgainstASlice(t *testing.T) {
	for seed := range uint64(sample.Count(60, 300)) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := sentRing{recs: make([]record, 64), mask: 63}
		// the counts wrap
		s.rel, s.una, s.nxt, s.end, s.unjudged = ^uint32(9), ^uint32(9), ^uint32(9),
			^uint32(9), ^uint32(9)
		now, at := int64(0), uint64(0)
		for step := range 2000 {
			now += r.Int64N(3)
			if s.free() > 8 && r.IntN(3) > 0 {
				n := 2 + r.IntN(10)
				s.append(at, Handle(step), n, 0)
				s.rec(s.nxt).sentAt = now
				s.nxt++
				at += uint64(n)
			}
			if s.una == s.nxt {
				continue
			}
			i := s.una + r.Uint32N(s.nxt-s.una)
			rec := s.rec(i)
			switch r.IntN(7) {
			case 0:
				s.markSacked(i)
			case 1:
				s.markLost(i)
			case 2:
				rec.sentAt = now
				s.markResent(i)
			case 3:
				if rec.flags&recLost != 0 {
					s.found()
					s.unjudged = s.una
				}
			case 4:
				if s.splittable() && rec.len > 1 {
					s.split(i, 1+r.IntN(int(rec.len)-1))
				}
			case 5:
				s.popAcked()
				s.release()
			case 6:
				s.oldestUnjudged()
			}
			var want []uint32
			sacked, lost, sackedRecs := 0, 0, 0
			for i := s.una; i != s.nxt; i++ {
				switch rec := s.rec(i); {
				case rec.flags&recResent != 0:
					want = append(want, i)
				case rec.flags&recSacked != 0:
					sacked += rec.seqLen()
					sackedRecs++
				case rec.flags&recLost != 0:
					lost += rec.seqLen()
				case rec.flags&recEver == 0 && int32(s.unjudged-i) > 0:
					t.Fatalf("seed %d step %d: in flight before unjudged", seed, step)
				}
			}
			if len(want) != s.resent || sacked != s.sacked || lost != s.lost || sackedRecs != s.sackedRecs {
				t.Fatalf("seed %d step %d: counts %d %d %d %d, want %d %d %d %d", seed, step,
					s.resent, s.sacked, s.lost, s.sackedRecs, len(want), sacked, lost, sackedRecs)
			}
			if err := s.brokenList(); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			for i := s.una; i+1 != s.end && i != s.end; i++ {
				if s.rec(i).endAt() != s.rec(i+1).at {
					t.Fatalf("seed %d step %d: a gap after record %d", seed, step, i-s.una)
				}
			}
		}
	}
}

// Where the path carries less and less, each segment that is sent again is cut, the oldest first.
// To cut one moves no more records than lie on the shorter side of it, whatever of them is sent
// again, sent or acknowledged and not released.
func TestCutMovesTheShorterSide(t *testing.T) {
	const n, size = 1 << 9, 16
	for _, at := range []uint32{0, 1, 7, 100, 255, 256, 400, n - 12, n - 11, n - 10} {
		s := sentRing{recs: make([]record, n), mask: n - 1, rel: ^uint32(99), una: ^uint32(99),
			nxt: ^uint32(99), end: ^uint32(99), unjudged: ^uint32(99)}
		for i := range uint32(n - 9) {
			s.append(uint64(size*i), Handle(i), size, 0)
			if i < n-10 {
				s.nxt++
			}
		}
		for i := uint32(0); i < s.nxt-s.una; i += 3 {
			s.markResent(s.una + i)
		}
		first := s.rel
		for range min(at, 5) { // acknowledged, not released
			s.popAcked()
		}
		flying := s.nxt - s.una
		before := slices.Clone(s.recs)
		head := s.split(first+at, 5)
		moved := 0
		for i := range before {
			if before[i].at != s.recs[i].at || before[i].handle != s.recs[i].handle {
				moved++
			}
		}
		require.LessOrEqual(t, moved, int(min(at, n-10-at))+1, "record %d", at)
		require.EqualValues(t, at, s.rec(head).handle)
		require.EqualValues(t, 5, s.rec(head).len)
		require.Equal(t, s.rec(head).endAt(), s.rec(head+1).at)
		require.EqualValues(t, n-8, s.end-s.rel)
		sent := uint32(1)
		if at == n-10 {
			sent = 0
		}
		require.Equal(t, flying+sent, s.nxt-s.una, "record %d", at)
		require.NoError(t, s.brokenList())
		h := 0
		for i := s.rel; i != s.end; i++ {
			if i == head+1 {
				continue
			}
			require.EqualValues(t, h, s.rec(i).handle)
			h++
		}
	}
}

// A peer chooses which records are sent again, and when: by what it acknowledges, and by its
// silence. However they were sent, to take their loss back costs each O(log n) steps, not a walk
// over all others.
func TestFoundCostsNoWalk(t *testing.T) {
	const n = 1 << 12
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for name, when := range map[string]func(i int) int{
		"in order":        func(i int) int { return i },
		"reversed":        func(i int) int { return n - i },
		"at once":         func(int) int { return 1 },
		"every second":    func(i int) int { return i%2*n + i/2 },
		"oldest are lost": func(i int) int { return (i + n/2) % n },
		"anyhow":          func(int) int { return r.IntN(n) },
	} {
		s := sentRing{recs: make([]record, 2*n), mask: 2*n - 1}
		times := make([]int, n)
		order := make([]int, n)
		for i := range n {
			times[i], order[i] = when(i), i
			s.append(uint64(i), NoHandle, 1, 0)
			s.nxt++
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(times[a], times[b]) })
		for _, i := range order {
			s.rec(uint32(i)).sentAt = int64(times[i])
			s.markResent(uint32(i))
		}
		lost := 0
		for i := range n {
			if name == "anyhow" && r.IntN(2) == 0 || name != "anyhow" && times[i] <= n/2 {
				s.markLost(uint32(i))
				lost++
			}
		}
		steps := s.found()
		require.NoError(t, s.brokenList(), name)
		require.Equal(t, n, s.resent, name)
		require.Zero(t, s.lost, name)
		require.NotZero(t, lost, name)
		require.LessOrEqual(t, steps, n*(bits.Len(n)+4), "%s: steps for %d lost of %d", name, lost, n)
		require.GreaterOrEqual(t, steps, n, name)
	}
}
