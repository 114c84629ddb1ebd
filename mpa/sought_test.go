package mpa

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A peer that sends a run beyond a gap octet by octet, in whatever order, with markers that name no
// FPDU, has each marker looked at twice at most, and once more for each segment: not the whole run
// for each. So have segments that are refused because the run is as long as it may be.
func TestMarkersAreSoughtOnce(t *testing.T) {
	const size, first, bufs = 1448, 4 << 10, 200
	whole := bytes.Repeat([]byte{0xff}, size)
	start := func() *rig {
		r := newRig(t, rigConfig{Mode: withMarker, BufsMax: BufsMin(2048) + bufs}, nil)
		for i := range bufs {
			require.Equal(t, Kept, r.input(uint64(first+i*size), whole))
		}
		return r
	}
	const end, octets = first + bufs*size, bufs * size
	sought := func(r *rig) int { return int(r.recv.Stats().MarkersSought) }
	for name, at := range map[string]func(i int) uint64{
		"after it":  func(i int) uint64 { return uint64(end + i) },
		"before it": func(i int) uint64 { return uint64(first - 1 - i) },
		"by turns":  func(i int) uint64 { return uint64([]int{end + i/2, first - 1 - i/2}[i%2]) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start()
			built := sought(r)
			require.LessOrEqual(t, built, 2*octets/MarkerSpacing+bufs)
			taken := 0
			for i := range 2000 {
				if r.input(at(i), whole[:1]) != Refused {
					taken++
				}
			}
			require.NotZero(t, taken)
			require.Less(t, taken, 2000, "some are refused")
			require.LessOrEqual(t, sought(r)-built, 2*2000)
		})
	}
	r := start()
	built := sought(r)
	for range 2000 {
		require.Equal(t, Refused, r.input(end, whole))
	}
	require.LessOrEqual(t, sought(r)-built, 2000*(size/MarkerSpacing+2),
		"each looks at its own markers")
}

// What is remembered of markers changes nothing: pieces of any size in any order bring the FPDUs
// that a Receiver finds which is given the same octets as one piece beyond the gap.
func TestMarkersAreSoughtAsOften(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 4))
	t.Logf("seed %d", seed)
	for range 300 {
		lens := make([]int, 2+r.IntN(12))
		for i := range lens {
			lens[i] = r.IntN(1200)
		}
		s := streamOf(withMarker, lens...)
		lo := 1 + r.IntN(len(s.octets)-1)
		g := newRig(t, rigConfig{Mode: withMarker, BufsMax: BufsMin(2048) + 64}, s)
		var cuts [][2]int
		for at := lo; at < len(s.octets); {
			to := min(at+1+r.IntN(1+r.IntN(900)), len(s.octets))
			cuts = append(cuts, [2]int{at, to})
			at = to
		}
		r.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
		if len(cuts) > RunsMax {
			continue
		}
		refused := false
		for _, c := range cuts {
			g.send(c[0], c[1])
			refused = refused || g.verdict == Refused
		}
		if refused {
			continue
		}
		once := newRig(t, rigConfig{Mode: withMarker, Stride: 1 << 15, BufsMax: BufsMin(1<<15) + 4}, s)
		once.send(lo, len(s.octets))
		require.Equal(t, len(once.got), len(g.got), "seed %d: FPDUs located beyond the gap", seed)
		for at := 0; at < lo; at += 1000 {
			g.send(at, min(at+1000, lo))
		}
		checkAll(t, g)
	}
}
