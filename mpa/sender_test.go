package mpa

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// sizesAround are ULPDU sizes near every boundary that markers and padding make.
func sizesAround() []int {
	var sizes []int
	for n := 0; n <= 24; n++ {
		sizes = append(sizes, n)
	}
	for _, c := range []int{128, 484, 500, 508, 512, 992, 1008, 1016, 1442, 1454} {
		for n := c - 6; n <= c+6; n++ {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// Every size at every position between two markers against the oracle's octets: a marker between
// PAD and CRC is covered by the CRC (DECISIONS 17), and without CRC its field is zero.
//
// req: D01-4-1, D01-4-3, D01-4-4, D01-4.1-1, D01-5.1-3, D01-5.1-4, D01-5.1-12, D01-5.1-13
// req: D01-5.2-14, 5044-4.2-1, 5044-4.3-1, 5044-4.3-2, 5044-4.3-5, C02-6-1, C02-6-3, C02-7.2-1
// req: C02-7.2-4, D01-4-5, D01-5.2-9, D01-5.2-10
func TestPutAtEveryPosition(t *testing.T) {
	dst := make([]byte, 4096)
	for _, mode := range allModes {
		for start := 0; start < 1024; start += 4 {
			for _, n := range sizesAround() {
				if n > 24 && (start/4+n)%3 != 0 {
					continue // a third of the long ones is plenty
				}
				want := &stream{mode: mode}
				var s Sender
				s.Init(mode)
				if !fillTo(want, &s, start, dst) {
					continue
				}
				at := len(want.octets)
				u := ulpdu(start, n)
				want.add(u)
				require.Equal(t, len(want.octets)-at, s.Size(n), "size of %d at %d, %+v", n, at, mode)
				for i := range dst {
					dst[i] = 0xEE
				}
				cut := n / 3
				k := s.Put(dst, [][]byte{u[:cut], nil, u[cut:]})
				if string(want.octets[at:]) != string(dst[:k]) {
					t.Fatalf("ULPDU of %d at %d, %+v:\nwant %x\ngot  %x", n, at, mode, want.octets[at:], dst[:k])
				}
				require.Equal(t, byte(0xEE), dst[k], "wrote after the FPDU")
				require.EqualValues(t, len(want.octets), s.Offset())
			}
		}
	}
}

// fillTo brings both encoders to stream offset start with one FPDU; false if none ends there.
func fillTo(want *stream, s *Sender, start int, dst []byte) bool {
	if start == 0 {
		return true
	}
	for n := 0; n < start; n++ {
		if s.Size(n) == start {
			want.add(make([]byte, n))
			s.Put(dst, [][]byte{make([]byte, n)})
			return true
		}
	}
	return false
}

// req: D01-5.1-14, C02-7.1-12
func TestFigure4(t *testing.T) {
	// Length at 500, so that a marker follows ULPDU octet 9.
	var s Sender
	s.Init(withMarker)
	dst := make([]byte, 600)
	at := s.Put(dst, [][]byte{make([]byte, 500-4-2-4)})
	require.Equal(t, 500, at)
	n := s.Put(dst[at:], [][]byte{ulpdu(1, 16)})
	want := append(unhex(t, "0010"), ulpdu(1, 16)[:10]...)
	want = append(want, unhex(t, "0000 000C")...)
	want = append(want, ulpdu(1, 16)[10:]...)
	want = append(want, 0, 0, 0, 0, 0, 0) // PAD and an unused CRC
	require.Equal(t, want, dst[at:at+n])
}

// req: D01-5.3.2-1, D01-5.3.2-3, D01-5.3.2-7, D01-3.2-4, 5044-4.5-2, C02-7.3.2-1, C02-7.3.2-6
// req: C02-5.2-4
func TestMULPDU(t *testing.T) {
	for _, c := range []struct{ emss, without, with int }{
		{64, 128, 128}, {128, 128, 128}, {134, 128, 128}, {139, 130, 128}, {140, 134, 130},
		{512, 506, 502},
		{513, 506, 498}, {536, 530, 522}, {1448, 1442, 1430}, {1460, 1454, 1442}, {8948, 8942, 8870},
		{8960, 8954, 8882},
		{65495, 64768, 64768}, {65535, 64768, 64768},
	} {
		var s Sender
		s.Init(plain)
		require.Equal(t, c.without, s.MULPDU(c.emss), "EMSS %d", c.emss)
		s.Init(both)
		require.Equal(t, c.with, s.MULPDU(c.emss), "EMSS %d with markers", c.emss)
	}
}

// An FPDU of MULPDU octets fits into EMSS wherever it begins.
//
// req: D01-5.3.2-2, C02-7.3.2-2
func TestMULPDUFitsAtEveryPosition(t *testing.T) {
	for _, mode := range []Mode{plain, both} {
		for emss := 140; emss < 9100; emss += 13 {
			n := mode.MULPDU(emss)
			for at := uint64(0); at < 512; at += 4 {
				f := mode.frameOf(at, n)
				if f.end-f.begin > uint64(emss) {
					t.Fatalf("EMSS %d, MULPDU %d: FPDU of %d octets at %d", emss, n, f.end-f.begin, at)
				}
			}
		}
	}
}

// With markers too, a full segment has EMSS octets wherever it begins, as far as FPDUs can: they
// are multiples of four, and do not end with a marker. Where there is one marker fewer than the
// formula reckons with, the ULPDU is longer.
func TestMULPDUHereFillsTheSegment(t *testing.T) {
	longer := 0
	for _, mode := range []Mode{plain, both} {
		for emss := 64; emss < 9100; emss += 13 {
			for at := uint64(0); at < 512; at += 4 {
				s := Sender{mode: mode, off: at}
				n, least, full := s.MULPDUHere(emss), s.MULPDU(emss), emss&^3
				if mode.Markers && (at+uint64(full))%MarkerSpacing == MarkerLen {
					full -= MarkerLen
				}
				switch {
				case least == MULPDUMin:
					require.Equal(t, least, n, "EMSS %d", emss)
				case s.Size(n) != full || n < least:
					t.Fatalf("EMSS %d, at %d: %d octets, MULPDU %d: an FPDU of %d", emss, at, n, least, s.Size(n))
				case n > least:
					longer++
					require.Equal(t, least+MarkerLen, n)
					require.True(t, mode.Markers)
				}
			}
		}
	}
	require.Positive(t, longer)
	for _, off := range []uint64{0, 4, 508} {
		s := Sender{mode: both, off: off}
		require.Equal(t, mulpduMax, s.MULPDUHere(65535))
	}
}

func TestPutPanics(t *testing.T) {
	var s Sender
	s.Init(both)
	require.Panics(t, func() { s.Put(make([]byte, 70000), [][]byte{make([]byte, mulpduMax+1)}) })
	require.Panics(t, func() {
		s.Put(make([]byte, 10, 100), [][]byte{make([]byte, 4)})
	}, "capacity is not room")
	require.Zero(t, s.Offset())
	require.NotPanics(t, func() { s.Put(make([]byte, 70000), [][]byte{make([]byte, mulpduMax)}) })
}

func TestPutDoesNotAllocate(t *testing.T) {
	for _, mode := range allModes {
		var s Sender
		s.Init(mode)
		dst := make([]byte, 2048)
		parts := [][]byte{make([]byte, 18), make([]byte, 1400)}
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Put(dst, parts) }), "%+v", mode)
	}
}

func BenchmarkPut(b *testing.B) {
	for _, emss := range []int{1460, 8960} {
		for _, mode := range []Mode{withCRC, both, plain, withMarker} {
			b.Run(fmt.Sprintf("%d/markers=%t/crc=%t", emss, mode.Markers, mode.CRC), func(b *testing.B) {
				var s Sender
				s.Init(mode)
				n := s.MULPDU(emss)
				dst := make([]byte, emss)
				u := ulpdu(5, n)
				parts := [][]byte{u[:14], u[14:]}
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					s.Put(dst, parts)
				}
				want := &stream{mode: mode}
				want.add(u)
				clear(dst)
				s.Init(mode)
				require.True(b, bytes.Equal(want.octets, dst[:s.Put(dst, parts)]), "what the oracle writes")
			})
		}
	}
}
