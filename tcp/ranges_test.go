package tcp

import (
	"math/rand/v2"
	"testing"
)

// naive is a set of octets.
type naive [400]bool

func (n *naive) gap(lo, hi uint64) (uint64, uint64) {
	for lo < hi && n[lo] {
		lo++
	}
	end := lo
	for end < hi && !n[end] {
		end++
	}
	if lo == hi {
		return hi, hi
	}
	return lo, end
}

func (n *naive) runs(edge uint64) (spans []span) {
	for i := edge; i < uint64(len(n)); i++ {
		if n[i] && (i == edge || !n[i-1]) {
			spans = append(spans, span{left: i})
		}
		if n[i] {
			spans[len(spans)-1].right = i + 1
		}
	}
	return spans
}

func newRanges(n int) ranges { return ranges{spans: make([]span, 0, n)} }

func TestRangesAgainstNaive(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := newRanges(1 + rng.IntN(20))
		var n naive
		edge := uint64(0)
		latest := span{}
		for step := range 300 {
			lo := edge + uint64(rng.IntN(int(uint64(len(n))-edge)))
			hi := min(lo+1+uint64(rng.IntN(30)), uint64(len(n)))
			gl, gh := r.gap(lo, hi)
			if wl, wh := n.gap(lo, hi); gl != wl || gh != wh {
				t.Fatalf("seed %d step %d: gap(%d,%d) = %d,%d want %d,%d in %v", seed, step, lo, hi, gl, gh, wl,
					wh, r.spans)
			}
			if gl == gh {
				if h, ok := r.holder(lo, hi); !ok || h.left > lo || h.right < hi {
					t.Fatalf("seed %d step %d: holder(%d,%d) = %v %v in %v", seed, step, lo, hi, h, ok, r.spans)
				}
				continue
			}
			switch {
			case gl == edge:
				for i := gl; i < gh; i++ {
					n[i] = true
				}
				edge = r.advance(gh)
			case r.fits(gl, gh):
				r.add(gl, gh)
				for i := gl; i < gh; i++ {
					n[i] = true
				}
				latest, _ = r.before(^uint32(0))
				if latest.left > gl || latest.right < gh {
					t.Fatalf("seed %d step %d: latest %v, added [%d,%d)", seed, step, latest, gl, gh)
				}
			case len(r.spans) < cap(r.spans):
				t.Fatalf("seed %d step %d: does not fit with %d of %d", seed, step, len(r.spans), cap(r.spans))
			}
			want := n.runs(edge)
			if len(want) != len(r.spans) {
				t.Fatalf("seed %d step %d: %v, want %v", seed, step, r.spans, want)
			}
			for i, w := range want {
				if w.left != r.spans[i].left || w.right != r.spans[i].right {
					t.Fatalf("seed %d step %d: %v, want %v", seed, step, r.spans, want)
				}
			}
			if edge == uint64(len(n)) {
				break
			}
		}
	}
}
