package mpa

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Markers stand at every 512th octet from the start point and nowhere else; their reserved octets
// are zero; each says how far after the ULPDU_Length of the FPDU that it is in, or zero where
// that follows. Long FPDUs have several markers that point to one place, short ones share an
// interval, and some end where a marker is due.
//
// req: D01-5.1-3, D01-5.1-4, D01-5.1-6, D01-5.1-7, D01-5.1-12, D01-5.1-13, D01-4.1-1, D01-4.1-2
// req: D01-4.1-3, D01-5.1-8, C02-7.1-1, C02-7.1-2, C02-7.1-4, C02-7.1-5, C02-7.1-10, C02-7.1-11
// req: C02-6.1-1, C02-6.1-2, C02-6.1-3, C02-7.1-6, 5044-4.2-1, 5044-4.3-2, 5044-4.3-5
func TestMarkersEvery512Octets(t *testing.T) {
	var s Sender
	s.Init(both)
	dst := make([]byte, 3000)
	var octets []byte
	var begins []int
	sizes := []int{502, 0, 1, 2, 3, 490, 476, 2500, 7, 7, 7, 7, 506, 1016, 129, 42, 42}
	for i := range 120 {
		n := s.Put(dst, [][]byte{ulpdu(i, sizes[i%len(sizes)])})
		begins = append(begins, len(octets))
		octets = append(octets, dst[:n]...)
	}
	require.Greater(t, len(octets), 20*MarkerSpacing)

	between, inside, third := 0, 0, 0
	for m, k := 0, 0; m < len(octets); m += MarkerSpacing {
		for k+1 < len(begins) && begins[k+1] <= m {
			k++
		}
		head := begins[k]
		if head%MarkerSpacing == 0 {
			head += MarkerLen
		}
		want := m - head
		if m == begins[k] {
			want = 0
			between++
		} else {
			inside++
			require.Zero(t, want&3)
			if want > 2*MarkerSpacing {
				third++
			}
		}
		require.Equal(t, uint32(want), binary.BigEndian.Uint32(octets[m:]), "marker at %d of FPDU at %d",
			m, begins[k])
	}
	require.Greater(t, between, 2, "markers between FPDUs: the first, and others")
	require.Positive(t, inside)
	require.Positive(t, third, "third markers of an FPDU")

	// No marker anywhere else: what is left when they are taken out is lengths, ULPDUs, PADs and CRCs.
	var content []byte
	for m := 0; m < len(octets); m += MarkerSpacing {
		content = append(content, octets[m+MarkerLen:min(m+MarkerSpacing, len(octets))]...)
	}
	for i := range begins {
		n := sizes[i%len(sizes)]
		require.EqualValues(t, n, binary.BigEndian.Uint16(content))
		require.Equal(t, ulpdu(i, n), content[2:2+n])
		content = content[(2+n+3)/4*4+4:]
	}
	require.Empty(t, content)
}

// A marker between two FPDUs is the second one's: damaged, it spoils that one's CRC and not the
// first one's.
//
// req: D01-5.1-7, C02-7.1-5, 5044-4.3-2, D01-5.2-15, C02-7.2-5
func TestMarkerBetweenFPDUs(t *testing.T) {
	s := streamOf(both, 502, small)
	require.EqualValues(t, MarkerSpacing, s.frames[0].end)
	require.Equal(t, []byte{0, 0, 0, 0}, s.octets[512:516])
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(0, len(s.octets)).want(0, 1)
	s.octets[512] ^= 1 // a reserved bit
	r = newRig(t, rigConfig{Mode: both}, s)
	r.send(0, len(s.octets)).want(0).failed(ErrCRC)
	s.reseal(1)
	r = newRig(t, rigConfig{Mode: both}, s)
	r.send(0, len(s.octets)).want(0, 1)
}

// Beyond a gap a marker locates: by zero the FPDU that follows, by a distance the one around it,
// whatever its two low bits say and wherever that FPDU begins. Its own octets decide nothing
// before its CRC is right.
//
// req: D01-5.1-6, D01-5.1-8, D01-5.4-4, C02-7.1-4, C02-7.1-6, C02-7.4-4, 5044-4.2-1
func TestMarkerLocates(t *testing.T) {
	for _, c := range []struct {
		name   string
		sizes  []int
		ptr    uint16 // what the marker at 512 says
		also   uint16 // what it may say as well
		passes []int
	}{
		{"the next, by zero", []int{502, 100, 700}, 0, 3, []int{1, 2}},
		{"around it", []int{100, 600, 100}, 512 - 112, 512 - 112 + 3, []int{1, 2}},
		{"around it, right in front of the CRC", []int{482, 18, 700}, 512 - 492, 512 - 492 + 1,
			[]int{1, 2}},
	} {
		for _, base := range []uint64{0, 1<<32 - MarkerSpacing} {
			t.Run(c.name, func(t *testing.T) {
				s := streamOf(both, c.sizes...)
				require.Equal(t, c.ptr, binary.BigEndian.Uint16(s.octets[514:]))
				f := s.frames[1]
				for _, ptr := range []uint16{c.ptr, c.also} {
					binary.BigEndian.PutUint16(s.octets[514:], ptr)
					s.reseal(1)
					r := newRig(t, rigConfig{Mode: both, Base: base}, s)
					r.send(int(f.start), len(s.octets))
					r.want(c.passes...).send(0, int(f.start)).want(0).held(0)
				}
			})
		}
	}
}

// After an FPDU that a marker located, FPDUs are found by their lengths, over several segments
// and up to where passed ones begin; and in front of it nothing is.
//
// req: D01-5.4-5, C02-7.4-5
func TestLengthsChainFromMarker(t *testing.T) {
	s := streamOf(both, small, small, small, 400, small, small, small, small)
	r := newRig(t, rigConfig{Mode: both}, s)
	f := s.frames
	at := func(i int) int { return int(f[i].start) }
	require.True(t, at(3) < 512 && at(4) > 512 && len(s.octets) < 1024,
		"one marker beyond the first, in FPDU 3")
	r.send(at(2), at(3)).is(Kept).want()
	r.send(at(5), at(6)).is(Kept).want()
	r.send(at(3), at(4)).want(3)
	r.send(at(4), at(5)).want(4, 5)
	r.send(at(6), len(s.octets)).want(6, 7)
	require.Equal(t, []bool{false, false, false, false, false}, r.inOrder)
	r.held(1) // FPDU 2
	r.send(at(0), at(1)).want(0)
	r.send(at(1), at(2)).want(1, 2).held(0).edge(len(s.octets), len(s.octets))
}

// A stream that is in order needs no marker to be found: it is read by lengths, and its markers
// are checked all the same.
//
// req: 5044-5.2-1, 5044-5.2-2, D01-7-6, C02-9-6, D01-5.4-3, C02-7.4-3, D01-7-3, C02-9-3
func TestMarkersInOrderAreCheckedOnly(t *testing.T) {
	clean := streamOf(both, small, small, small, 1200, small)
	f := clean.frames
	r := newRig(t, rigConfig{Mode: both}, clean)
	for _, g := range f {
		r.send(int(g.start), int(g.end)).is(Done)
	}
	r.want(0, 1, 2, 3, 4)
	for _, m := range []int{0, 512, 1024} {
		s := &stream{mode: both, octets: append([]byte(nil), clean.octets...), frames: f}
		s.octets[m+3] ^= 8
		first := 3
		if m == 0 {
			first = 0
		}
		s.reseal(first)
		r := newRig(t, rigConfig{Mode: both}, s)
		for _, g := range f {
			r.send(int(g.start), int(g.end))
		}
		r.want([]int{0, 1, 2}[:first]...).failed(ErrMarker)
	}
}
