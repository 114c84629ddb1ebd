package mpa

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// req: D01-4-6, 5044-7.1.1-3
func TestGarbageCRCWithoutCRC(t *testing.T) {
	s := streamOf(withMarker, 100, 100)
	for _, f := range s.frames {
		copy(s.octets[f.end-4:], "junk")
	}
	r := newRig(t, rigConfig{Mode: withMarker}, s)
	r.send(0, len(s.octets)).is(Done).want(0, 1)
}

// Every bit of an FPDU is protected, and nothing is passed after it.
//
// req: D01-5.2-17, D01-5.2-18, D01-7-2, D01-7-10, D01-1.2-7, C02-7.2-7, C02-7.2-8, C02-3.2-5
// req: C02-9-2, C02-9-8
func TestEveryFlippedBitIsFound(t *testing.T) {
	clean := streamOf(both, 506, small, small)
	f := clean.frames[0]
	for bit := uint64(0); bit < 8*f.end; bit++ {
		s := &stream{mode: both, octets: append([]byte(nil), clean.octets...), frames: clean.frames}
		s.octets[bit/8] ^= 1 << (bit % 8)
		r := newRig(t, rigConfig{Mode: both}, s)
		r.send(0, len(s.octets))
		r.want()
		if err := r.recv.Err(); err == nil {
			// The length grew: the FPDU is not whole, and the octets it lacks decide.
			require.True(t, bit/8 == f.start+4 || bit/8 == f.start+5, "bit %d", bit)
			r.recv.Close()
			r.held(0)
			continue
		}
		r.edge(len(s.octets), 0)
		require.Equal(t, Done, r.input(uint64(len(s.octets)), []byte{1, 2, 3}), "swallowed")
		r.want().held(0)
	}
}

// Under the drop policy nothing of a segment with a bad CRC is placed, and its repetition is.
//
// req: D01-7-9, C02-9-7
func TestDropBadCRC(t *testing.T) {
	clean := streamOf(both, small, small, 500)
	for _, ooo := range []bool{false, true} {
		for bad := range 2 {
			s := &stream{mode: both, octets: append([]byte(nil), clean.octets...), frames: clean.frames}
			r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
			lo, hi := 0, len(s.octets)
			first := 0
			if ooo {
				// An FPDU over the next marker, then another: both located out of order.
				s = streamOf(both, small, 500, small)
				r.s = s
				lo, hi = int(s.frames[1].start), len(s.octets)
				first = 1
			}
			flip := s.frames[first+bad].end - 10
			s.octets[flip] ^= 0x10
			r.send(lo, hi).is(Refused).want().held(0)
			require.NoError(t, r.recv.Err())
			require.EqualValues(t, 1, r.recv.Stats().RefusedCRC)
			require.False(t, r.recv.Short())
			s.octets[flip] ^= 0x10
			r.send(lo, hi).is(Done).held(0)
			if ooo {
				r.want(1, 2).send(0, lo).want(0)
			} else {
				r.want(0, 1, 2)
			}
			require.NoError(t, r.recv.Err())
		}
	}
}

// An FPDU whose octets were partly taken cannot be dropped (DECISIONS 30).
func TestDropNeedsTheWholeFPDU(t *testing.T) {
	s := streamOf(both, 600, small)
	s.octets[300] ^= 1
	r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
	r.send(0, 100).is(Refused).held(0) // the first that is not whole: its length may be damaged
	r.send(0, 100).is(Kept)
	r.send(100, len(s.octets)).is(Done).want().failed(ErrCRC)
}

// Octets that TCP has acknowledged are not refused, neither for their CRC nor for want of Bufs:
// they would not come again. What comes after them is.
//
// req: D01-7-2
func TestCommittedOctetsAreNotRefused(t *testing.T) {
	s := streamOf(both, 600, small, small)
	first, second := int(s.frames[0].end), int(s.frames[1].end)
	r := newRig(t, rigConfig{Mode: both, DropBadCRC: true, Reserve: &Reserve{Spare: 1000}}, s)
	r.send(0, 100).is(Refused)
	r.late = true
	r.send(0, 100).is(Kept)
	r.send(100, first).is(Done).want(0).held(0)
	r.late = false
	r.send(first, second-1).is(Refused)
	r.send(first, second).is(Done).want(1)
	s.octets[len(s.octets)-1] ^= 1
	r.send(second, len(s.octets)).is(Refused)
	r.late = true
	r.send(second, len(s.octets)).is(Done).want().failed(ErrCRC)
}

// Under the drop policy octets beyond a gap are taken only when all of them could be verified.
func TestDropTakesNothingUnverified(t *testing.T) {
	s := streamOf(both, 600, 600, 600, small)
	reserve := &Reserve{}
	r := newRig(t, rigConfig{Mode: both, DropBadCRC: true, Reserve: reserve}, s)
	second, third := int(s.frames[1].start), int(s.frames[2].start)
	r.send(second, third+100).is(Refused).want().held(0) // the front of the third
	r.send(second, third).is(Done).want(1).held(0)
	require.EqualValues(t, 1, r.recv.Stats().RefusedUnverified)
	require.Equal(t, Refusals{Unverified: 1}, reserve.Refusals)
	require.NoError(t, r.recv.Err())
}

// A segment that ended inside an FPDU was refused, and when that FPDU came whole its length was
// what had stood there: the path cuts segments, and the next cut is believed at once. Another
// length: the segment was damaged, and cuts are doubted.
func TestDropLearnsThatThePathCutsSegments(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		s := streamOf(both, 600, 600, 600, 600)
		second, third, fourth := int(s.frames[1].start), int(s.frames[2].start), int(s.frames[3].start)
		r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
		end := third - 10
		if damaged {
			s.octets[second] ^= 1 // ULPDU_Length: more than there is
			end = third
		}
		r.send(0, end).is(Refused).want()
		if damaged {
			s.octets[second] ^= 1
		}
		r.send(0, second).is(Done).want(0)
		r.send(second, third).is(Done).want(1)
		want := Kept
		if damaged {
			want = Refused
		}
		r.send(third, fourth+100).is(want)
		require.NoError(t, r.recv.Err())
	}
}

// Where less remains of a segment than the shortest FPDU has, no damage can have made it look so:
// the path cuts, and the next cut is believed, too. An octet more is doubted.
//
// req: D01-7-9, C02-9-7
func TestDropBelievesACutWithinTheShortestFPDU(t *testing.T) {
	for _, mode := range []Mode{withCRC, both} {
		for _, front := range []int{0, 60} { // the FPDU's place: after a marker or not
			sizes := []int{14, 60, 60}
			if front > 0 {
				sizes = append([]int{front}, sizes...)
			}
			s := streamOf(mode, sizes...)
			at := len(s.frames) - 3
			begin, end := int(s.frames[at].start), int(s.frames[at].end)
			for cut := begin + 1; cut < end; cut++ {
				r := newRig(t, rigConfig{Mode: mode, DropBadCRC: true}, s)
				r.recv.ulpduMin = 14
				r.send(0, cut).is(Kept)
				require.Zero(t, r.recv.Stats().RefusedUnverified)
				r.send(cut, end+30).is(Kept)
				r.send(end+30, len(s.octets)).is(Done)
				require.EqualValues(t, len(sizes), r.recv.Stats().FPDUs)
			}
			r := newRig(t, rigConfig{Mode: mode, DropBadCRC: true}, s)
			r.recv.ulpduMin = 13 // one octet of PAD less, and the same length
			r.send(0, end-1).is(Kept)
			r = newRig(t, rigConfig{Mode: mode, DropBadCRC: true}, s)
			r.recv.ulpduMin = 10 // four octets shorter than the FPDU is
			r.send(0, end-5).is(Kept)
			r = newRig(t, rigConfig{Mode: mode, DropBadCRC: true}, s)
			r.recv.ulpduMin = 10
			r.send(0, end-4).is(Refused)
		}
	}
}

// A segment whose ULPDU_Length was damaged is refused as often as the network brings a copy of it,
// which has the timestamp that it had; what the peer sends again is taken, and when that says
// another length it was damaged, too.
//
// req: D01-7-9, C02-9-7
func TestDropDoubtsTheNetworksCopy(t *testing.T) {
	clean := streamOf(both, 300, 400)
	for _, base := range []uint32{0, 1<<32 - 2} {
		s := &stream{mode: both, octets: append([]byte(nil), clean.octets...), frames: clean.frames}
		first := int(s.frames[0].end)
		r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
		for i, sent := range []struct {
			stamp  uint32
			length byte
		}{{1, 2}, {1, 2}, {0, 2}, {1, 2}, {2, 3}, {2, 3}} {
			r.recv.Sent(base + sent.stamp)
			s.octets[4] = sent.length // of ULPDU_Length: more than there is
			r.send(0, first).is(Refused).want().held(0)
			require.EqualValues(t, i+1, r.recv.Stats().RefusedUnverified)
		}
		s.octets[4] = clean.octets[4]
		r.recv.Sent(base + 3)
		r.send(0, first).is(Done).want(0)
		// The same again, sent again: the path cuts.
		r.send(first, first+100).is(Refused)
		r.send(first, first+100).is(Refused)
		r.recv.Sent(base + 4)
		r.send(first, first+100).is(Kept)
		r.send(first+100, len(s.octets)).is(Done).want(1)
	}
}

// A path that cuts at another octet each time is believed after some tries.
func TestDropBelievesAPathThatCutsAnywhere(t *testing.T) {
	s := streamOf(both, 60, 60, 60, 60, 60, 60, 60, 60)
	r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
	for i := range doubtsMax {
		r.send(0, int(s.frames[doubtsMax-i].end)+20).is(Refused).want()
	}
	r.send(0, int(s.frames[0].end)+20).is(Kept).want(0)
	r.send(int(s.frames[0].end)+20, len(s.octets)).is(Done).want(1, 2, 3, 4, 5, 6, 7)
}

// The front of an FPDU that was damaged for certain is refused whether frames stay whole or not: a
// marker that does not name the FPDU that it would lie in, or a ULPDU_Length that no FPDU has.
//
// req: D01-7-9, C02-9-7
func TestDropRefusesADamagedFront(t *testing.T) {
	s := streamOf(both, 1400, 1400, 200, 1400)
	third, end := int(s.frames[2].start), int(s.frames[3].start)
	for name, c := range map[string]struct{ lo, hi, at, bit int }{
		"leading marker":           {0, 100, 2, 4},
		"leading marker, reserved": {0, 100, 0, 0}, // says nothing
		"inner marker":             {0, 1100, 1026, 4},
		"no FPDU has the length":   {third, end, int(s.frames[2].start), 0xff},
		"length beyond a marker":   {third, len(s.octets), int(s.frames[2].start), 0x40},
	} {
		t.Run(name, func(t *testing.T) {
			for _, whole := range []bool{true, false} {
				s := &stream{mode: both, octets: append([]byte(nil), s.octets...), frames: s.frames}
				r := newRig(t, rigConfig{Mode: both, DropBadCRC: true, Stride: 9344}, s)
				r.recv.aligned = whole
				if c.lo > 0 {
					r.send(0, c.lo).want(0, 1)
				}
				clean := s.octets[c.at]
				s.octets[c.at] ^= byte(c.bit)
				refused := 2 * doubtsMax
				if c.bit == 0 {
					refused = 0
				}
				for range refused {
					r.send(c.lo, c.hi).is(Refused).want().held(0)
				}
				s.octets[c.at] = clean
				r.insist(c.lo, c.hi)
				r.send(c.hi, len(s.octets)).is(Done)
				require.NoError(t, r.recv.Err())
				require.EqualValues(t, 4, r.recv.Stats().FPDUs)
			}
		})
	}
}

// So it is when the segment also makes an FPDU whole whose front came before.
func TestDropRefusesADamagedFrontAfterAWholeFPDU(t *testing.T) {
	s := streamOf(both, 600, 600)
	r := newRig(t, rigConfig{Mode: both, DropBadCRC: true}, s)
	second := int(s.frames[1].start)
	r.send(0, 100).is(Refused)
	r.send(0, 100).is(Kept)
	s.octets[second] ^= 0xff
	r.send(100, second+50).is(Refused).want().held(1)
	s.octets[second] ^= 0xff
	r.send(100, second+50).is(Kept).want(0)
	// some octets of the second have been taken: which FPDU is wrong is no longer known (DECISIONS 30)
	s.octets[1026] ^= 4
	r.send(second+50, len(s.octets)).is(Done).want().failed(ErrCRC)
}
