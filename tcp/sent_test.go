package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// The list of what was sent again, against a slice: in the order of sending, whatever is marked,
// cut or acknowledged.
func TestSentRingAgainstASlice(t *testing.T) {
	for seed := range uint64(sample.Count(60, 300)) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := sentRing{recs: make([]record, 64), mask: 63}
		s.rel, s.una, s.nxt, s.end, s.unjudged = ^uint32(9), ^uint32(9), ^uint32(9), ^uint32(9), ^uint32(9) // the counts wrap
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
					s.markFound(i)
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
		}
	}
}
