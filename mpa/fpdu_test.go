package mpa

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// An FPDU's octets by the number of its ULPDU's: 2 of length, 0 to 3 of PAD so that it is a
// multiple of four, 4 of CRC, and 4 for each marker; ULPDU_Length counts none of them.
//
// req: D01-4-1, D01-4-2, D01-4-4, D01-4-5, D01-4-7, D01-5.2-10, C02-6-1, C02-6-2, C02-6-4, C02-6-5
// req: C02-6-6
func TestSizeOfFPDU(t *testing.T) {
	for _, c := range []struct{ n, pad, plain, marked int }{
		{0, 2, 8, 12}, {1, 1, 8, 12}, {2, 0, 8, 12}, {3, 3, 12, 16}, {4, 2, 12, 16}, {5, 1, 12, 16},
		{6, 0, 12, 16}, {7, 3, 16, 20},
		{8, 2, 16, 20}, {128, 2, 136, 140}, {502, 0, 508, 512}, {503, 3, 512, 520}, {1010, 0, 1016, 1024},
		{1011, 3, 1020, 1032},
		{64768, 2, 64776, 65288},
	} {
		require.Equal(t, c.pad, pad(c.n), "PAD of %d", c.n)
		require.Equal(t, c.plain, 2+c.n+c.pad+4)
		for _, mode := range allModes {
			want := c.plain
			if mode.Markers {
				want = c.marked
			}
			var s Sender
			s.Init(mode)
			require.Equal(t, want, s.Size(c.n), "ULPDU of %d, %+v", c.n, mode)
			dst := make([]byte, want)
			require.Equal(t, want, s.Put(dst, [][]byte{ulpdu(1, c.n)}))
			head := 0
			if mode.Markers {
				head = MarkerLen
			}
			require.EqualValues(t, c.n, binary.BigEndian.Uint16(dst[head:]), "ULPDU_Length")
			if c.n < 500 { // no marker between PAD and CRC
				require.Equal(t, make([]byte, c.pad), dst[want-4-c.pad:want-4], "PAD")
			}
		}
	}
}

// The largest ULPDU is what fits into the largest IP datagram beside 60 octets each of IP and TCP
// headers, an FPDU's fields and 128 markers, rounded down to a multiple of 128; what is larger is
// no FPDU.
//
// req: D01-3.2-4, D01-3.2-8, C02-5.2-4, C02-5.2-8
func TestLargestULPDU(t *testing.T) {
	const most = 65535 - 60 - 60 - (6 + 3 + 4*128)
	require.Equal(t, 64894, most)
	require.Equal(t, most/128*128, mulpduMax)
	for _, mode := range allModes {
		require.Equal(t, mulpduMax, mode.MULPDU(65535))
		f := mode.frameOf(0, mulpduMax)
		require.LessOrEqual(t, f.end, uint64(65535-60-60))
		require.Equal(t, MULPDUMin, mode.MULPDU(64))
	}
}

// Any ULPDU of 1 to 64768 octets may be sent, more than MULPDU too: what does not fit into a
// segment goes into several, and is handed up with its length and its octets when the last of
// them is there.
//
// req: D01-3.2-6, D01-3.2-7, D01-3.2-9, C02-5.2-6, C02-5.2-7, C02-5.2-9
func TestULPDUsOfEverySize(t *testing.T) {
	const emss = 1460
	for _, mode := range allModes {
		m := mode.MULPDU(emss)
		for _, n := range []int{1, 2, 3, 128, m, m + 1, m + 4, 2 * m, mulpduMax} {
			var s Sender
			s.Init(mode)
			u := ulpdu(n, n)
			octets := make([]byte, s.Size(n))
			s.Put(octets, [][]byte{u})
			require.Equal(t, n <= m, len(octets) <= emss, "%d octets, MULPDU %d", n, m)
			r := newRig(t, rigConfig{Mode: mode}, nil)
			for lo := 0; lo < len(octets); lo += emss {
				require.Empty(t, r.got)
				r.input(uint64(lo), octets[lo:min(lo+emss, len(octets))])
			}
			require.Equal(t, []passed{{0, uint64(len(octets)), string(u)}}, r.got)
			r.held(0)
		}
	}
}

// However small the segments, what is kept holds an FPDU of the least MULPDU, which is 140
// octets, and the largest: here it comes in segments of 40 and of 100 octets, into Bufs of 128.
//
// req: D01-11.2.2-1, D01-11.2.2-2, D01-11.2.2-3, C02-13.1.1.2-1, C02-13.1.1.2-2, C02-13.1.1.2-3
// req: 5044-A.5-2
func TestReassemblyHoldsTheSmallestMULPDU(t *testing.T) {
	const least = MULPDUMin + 2 + HeaderLen + CRCLen + MarkerLen // 2 of PAD
	require.Equal(t, 140, least)
	var s Sender
	s.Init(both)
	require.Equal(t, least, s.Size(MULPDUMin))
	for _, stride := range []int{128, 256, 2048} {
		require.GreaterOrEqual(t, BufsMin(stride)*stride, fpduMax)
		for _, n := range []int{MULPDUMin, mulpduMax} {
			st := streamOf(both, n, small)
			r := newRig(t, rigConfig{Mode: both, Stride: stride, BufsMax: BufsMin(stride)}, st)
			r.pos = 0
			for lo, k := 0, 40; lo < len(st.octets); k = 140 - k {
				hi := min(lo+k, len(st.octets))
				r.send(lo, hi)
				require.NotEqual(t, Refused, r.verdict)
				lo = hi
			}
			r.want(0, 1).held(0)
		}
	}
}
