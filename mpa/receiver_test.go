package mpa

import (
	"fmt"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// Sizes that give FPDUs of 48 octets; the first of a stream with markers has 52.
const small = 42

// req: D01-5.4.1-3, D01-5.4-1, D01-3.2-9, D01-1.2-4, C02-3.2-4
func TestAlignedInOrderIsDirect(t *testing.T) {
	s := streamOf(both, small, 400)
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(0, 52).is(Done).want(0).edge(0, 0).edge(52, 52)
	r.send(52, len(s.octets)).is(Done).want(1).held(0)
	r.edge(len(s.octets), len(s.octets))
	require.Equal(t, []bool{true, true}, r.direct)
	require.Equal(t, []bool{true, true}, r.inOrder)
	require.Equal(t, ReceiverStats{FPDUs: 2, Direct: 2, BytesDirect: small + 400}, r.recv.Stats())
}

// A marker that points elsewhere under a good CRC is code 3.
//
// req: D01-7-3, D01-7-5, C02-9-3, C02-9-5
func TestMarkerDisagrees(t *testing.T) {
	for _, split := range []int{0, 300, 514} {
		for _, at := range []int{2, 514} {
			s := streamOf(both, 800, small)
			s.octets[at+1] ^= 4
			s.reseal(0)
			r := newRig(t, rigConfig{Mode: both}, s)
			if split > 0 {
				r.send(0, split).is(Kept)
			}
			r.send(split, len(s.octets)).is(Done).want().failed(ErrMarker)
		}
	}
}

// A marker located an FPDU; when the gap closes the lengths lead elsewhere.
//
// req: D01-7-5, C02-9-5
func TestBoundariesDisagreeWhenGapCloses(t *testing.T) {
	s := streamOf(both, 100, 100, 600)
	r := newRig(t, rigConfig{Mode: both}, s)
	f := s.frames
	r.send(int(f[2].start), int(f[2].end)).is(Done).want(2)
	// FPDU 1 claims four octets more than there are in front of FPDU 2.
	s.octets[f[1].start+1] += 4
	r.send(0, int(f[2].start)).is(Done).want(0).failed(ErrMarker).edge(len(s.octets), int(f[0].end))

	// The same with an FPDU that ends early and leaves too little for another.
	s = streamOf(both, 100, 100, 600)
	s.octets[f[1].start+1] -= 4
	s.frames[1].end -= 4
	s.reseal(1)
	s.frames[1].ulpdu = s.frames[1].ulpdu[:96]
	r = newRig(t, rigConfig{Mode: both}, s)
	r.send(int(f[2].start), int(f[2].end)).is(Done).want(2)
	r.send(0, int(f[2].start)).is(Done).want(0, 1).failed(ErrMarker)
}

// ULPDU_Length above 64768 is an error at once in order; beyond a gap it waits until it is in
// order (DECISIONS 19).
func TestOversize(t *testing.T) {
	for _, mode := range allModes {
		s := streamOf(mode, 100)
		end := len(s.octets)
		s.octets = append(s.octets, 0xFD, 0x01)
		r := newRig(t, rigConfig{Mode: mode}, s)
		r.send(0, end+2).is(Done).want(0).failed(ErrMarker)

		r = newRig(t, rigConfig{Mode: mode}, s)
		r.send(0, end+1).is(Kept).want(0)
		r.send(end+1, end+2).is(Done).failed(ErrMarker)
	}
	// Whole in one segment, as a kernel socket may hand it over.
	for _, mode := range allModes {
		s := streamOf(mode, mulpduMax+1)
		r := newRig(t, rigConfig{Mode: mode, Stride: 80000}, s)
		r.send(0, len(s.octets)).is(Done).want().failed(ErrMarker)
	}
	s := streamOf(both, 100, 600, 100, 600, 100)
	f := s.frames
	s.octets[f[2].start] = 0xFD
	s.octets[f[2].start+1] = 0x01
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(int(f[1].start), int(f[2].end)).is(Kept).want(1)
	r.send(int(f[3].start), len(s.octets)).want() // nothing can make it good again
	require.NoError(t, r.recv.Err())
	r.send(0, int(f[0].end)).want(0).failed(ErrMarker).edge(len(s.octets), int(f[1].end))

	// The other way round: what stands after is passed first.
	r = newRig(t, rigConfig{Mode: both}, s)
	r.send(int(f[3].start), len(s.octets)).want(3, 4)
	r.send(int(f[1].start), int(f[2].end)).want(1)
	require.NoError(t, r.recv.Err())
	r.send(0, int(f[0].end)).want(0).failed(ErrMarker)
}

// Beyond a gap a marker is not yet validated. One that cannot be right locates nothing and is no
// error before its FPDU is reached in order.
func TestLocateNeverGuesses(t *testing.T) {
	// FPDU 1 reaches over the markers at 512 and 1024, FPDU 2 over those at 1536 and 2048.
	for _, c := range []struct {
		name   string
		marker int
		ptr    int
		passes []int // of [lo, end), none of it in order
		lo     int   // where the run begins
	}{
		{"in front of the stream", 512, 516, []int{2}, 420},
		{"on a marker", 512, 512, []int{2}, 420},
		{"into the FPDU in front, which ends before the marker", 512, 92, []int{2}, 416},
		{"after a marker of an FPDU that begins before the run", 1024, 516, []int{2}, 504},
		{"its FPDU is longer than any", 512, 64, []int{2}, 420},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := streamOf(both, 402, 1000, 1000)
			f := s.frames
			require.Equal(t, []passed{{0, 412, ""}, {412, 1428, ""}, {1428, 2444, ""}},
				[]passed{{f[0].start, f[0].end, ""}, {f[1].start, f[1].end, ""}, {f[2].start, f[2].end, ""}})
			copy(s.octets[508:], []byte{4, 0})       // what 516 points at
			copy(s.octets[448:], []byte{0xFF, 0xFF}) // what 64 points at
			// what 92 points at: ends at 436
			copy(s.octets[420:], []byte{0, 8})
			s.octets[c.marker+2], s.octets[c.marker+3] = byte(c.ptr>>8), byte(c.ptr) // wrong
			s.reseal(1)
			r := newRig(t, rigConfig{Mode: both}, s)
			r.send(c.lo, len(s.octets)).is(Kept).want(c.passes...)
			require.NoError(t, r.recv.Err())
			r.send(0, c.lo).want(0).failed(ErrMarker)
		})
	}
}

// An FPDU whose leading marker is wrong is not found by its second one either, which points after
// the first.
//
// req: 5044-4.2-1, 5044-4.3-5
func TestSecondMarkerDoesNotLocateAfterAWrongFirst(t *testing.T) {
	s := streamOf(both, 502, 1000, 700)
	f := s.frames
	require.EqualValues(t, 512, f[1].start)
	require.Equal(t, []byte{0, 0, 0x01, 0xFC}, s.octets[1024:1028])
	s.octets[514] = 0xFC
	s.reseal(1)
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(512, len(s.octets)).is(Kept).want(2)
	require.NoError(t, r.recv.Err())
	r.send(0, 512).want(0).failed(ErrMarker)
}

// A marker names an FPDU that would end after one that was passed. It is not validated: no error
// before it is in order.
func TestUnvalidatedFPDUOverPassedOne(t *testing.T) {
	s := streamOf(both, 402, 1000, 1000)
	f := s.frames
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(int(f[2].start), int(f[2].end)).is(Done).want(2)
	copy(s.octets[448:], []byte{0x08, 0x00})
	s.octets[514], s.octets[515] = 0, 64
	s.reseal(1)
	r.send(420, int(f[2].start)).is(Kept).want()
	require.NoError(t, r.recv.Err())
	r.send(0, 420).want(0).failed(ErrMarker)
}

// A bad CRC beyond a gap is reported when it is found.
//
// req: D01-5.4-2, C02-7.4-2
func TestBadCRCOutOfOrder(t *testing.T) {
	s := streamOf(both, 100, 600, 100)
	s.octets[s.frames[2].end-1] ^= 1
	r := newRig(t, rigConfig{Mode: both}, s)
	r.send(int(s.frames[1].start), len(s.octets)).is(Done).want(1).failed(ErrCRC)
	r.send(0, 100).is(Done).want().edge(100, 0)
}

func TestOctetsOfferedTwicePanic(t *testing.T) {
	s := streamOf(both, 600, 600)
	for _, c := range [][2]int{{0, 10}, {350, 360}, {390, 410}, {210, 310}} {
		r := newRig(t, rigConfig{Mode: both}, s)
		r.send(0, 200)
		r.send(300, 400)
		require.Panics(t, func() { r.send(c[0], c[1]) }, "%v", c)
	}
	r := newRig(t, rigConfig{Mode: both}, s)
	require.Panics(t, func() { input(&r.recv, 8, 0, make([]byte, 8), r) }, "octets outside the slot")
}

func TestEmptyInput(t *testing.T) {
	r := newRig(t, rigConfig{Mode: both}, nil)
	require.Equal(t, Done, input(&r.recv, 7, mem.NoBuf, nil, r))
}

func TestInputDoesNotAllocate(t *testing.T) {
	for _, mode := range allModes {
		// In order and aligned, then two FPDUs over three segments.
		s := streamOf(mode, 1400, 1000, 1000)
		r := newRig(t, rigConfig{Mode: mode}, s)
		r.quiet = true
		cuts := []int{0, int(s.frames[0].end), int(s.frames[0].end) + 700, int(s.frames[0].end) + 1500,
			len(s.octets)}
		n := testing.AllocsPerRun(100, func() {
			r.recv.next = 0
			for i := range len(cuts) - 1 {
				r.send(cuts[i], cuts[i+1])
			}
		})
		require.Zero(t, n, "%+v", mode)
		require.NoError(t, r.recv.Err())
		r.held(0)
	}
}

type nullSink struct{}

func (nullSink) Place(*ULPDU) {}

func BenchmarkInput(b *testing.B) {
	for _, emss := range []int{1460, 8960} {
		for _, mode := range []Mode{withCRC, both, plain, withMarker} {
			b.Run(fmt.Sprintf("%d/markers=%t/crc=%t", emss, mode.Markers, mode.CRC), func(b *testing.B) {
				n := mode.MULPDU(emss)
				s := streamOf(mode, n)
				r := newRig(b, rigConfig{Mode: mode, Stride: 9344}, s)
				buf := r.pool.Alloc()
				data := r.pool.Slot(buf)[128:]
				data = data[:copy(data, s.octets)]
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					r.recv.next = 0
					if input(&r.recv, 0, buf, data, nullSink{}) != Done || r.recv.stopped {
						b.Fatal("not passed")
					}
				}
				require.EqualValues(b, b.N, r.recv.Stats().Direct)
				data[n/2] ^= 1
				r.recv.next = 0
				input(&r.recv, 0, buf, data, nullSink{})
				require.Equal(b, mode.CRC, r.recv.Err() != nil, "an FPDU that was damaged")
			})
		}
	}
}

// Segments that straddle FPDUs, as a sender over an unaware TCP makes them.
func BenchmarkInputUnaligned(b *testing.B) {
	s := streamOf(withCRC, 1442, 1442, 1442, 1442, 1442, 1442, 1442, 1442)
	r := newRig(b, rigConfig{Mode: withCRC}, s)
	r.quiet = true
	cuts := []int{0}
	for at := 1000; at < len(s.octets); at += 1448 {
		cuts = append(cuts, at)
	}
	cuts = append(cuts, len(s.octets))
	b.SetBytes(int64(len(s.octets)))
	b.ReportAllocs()
	for b.Loop() {
		r.recv.next = 0
		for i := range len(cuts) - 1 {
			r.send(cuts[i], cuts[i+1])
		}
	}
	require.NoError(b, r.recv.Err())
	require.EqualValues(b, b.N*len(s.frames), r.recv.Stats().FPDUs)
}

// Every second segment comes late: markers locate, nothing is held.
func BenchmarkInputOutOfOrder(b *testing.B) {
	s := &stream{mode: both}
	for i := range 16 {
		s.add(ulpdu(i, both.MULPDU(1460)))
	}
	r := newRig(b, rigConfig{Mode: both}, s)
	r.quiet = true
	b.SetBytes(int64(len(s.octets)))
	b.ReportAllocs()
	for b.Loop() {
		r.recv.next = 0
		for i := 1; i < 16; i += 2 {
			r.send(int(s.frames[i].start), int(s.frames[i].end))
		}
		for i := 0; i < 16; i += 2 {
			r.send(int(s.frames[i].start), int(s.frames[i].end))
		}
	}
	require.NoError(b, r.recv.Err())
	require.EqualValues(b, b.N*len(s.frames), r.recv.Stats().FPDUs)
	require.EqualValues(b, b.N*8, r.recv.Stats().OutOfOrder)
}
