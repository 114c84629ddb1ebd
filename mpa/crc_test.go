package mpa

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	return must(hex.DecodeString(strings.Join(strings.Fields(s), "")))(t)
}

// req: D01-5.2-11, C02-7.2-2
func TestCRCOfIscsiDigest(t *testing.T) {
	b := append([]byte("123456789"), 0, 0, 0, 0)
	crcPut(b)
	require.Equal(t, unhex(t, "83 92 06 E3"), b[9:])
	require.True(t, crcGood(b))
}

// The four dumps of figures 5 and 6: DDP control 40 03 in the draft, 41 43 in the RFC.
var goldenDumps = []struct {
	name, control, first, second string
}{
	{"draft-ietf-rddp-mpa-01", "40 03", "4C 86 B3 84", "A1 9C D1 03"},
	{"RFC 5044", "41 43", "52 23 99 83", "84 92 58 98"},
}

// goldenFigures is the stream of figures 5 and 6: a first FPDU of 52 octets; a first FPDU of 492
// octets and a second with a marker inside.
func goldenFigures(t testing.TB, i int) (ulpdu1, fpdu1, ulpdu2, fpdu2 []byte) {
	g := goldenDumps[i]
	zeros := strings.Repeat("00", 24)
	ulpdu1 = unhex(t, g.control+"00000000 00000000 00000001 00000000"+zeros)
	fpdu1 = unhex(t, "0000 0000 002A"+g.control+"00000000 00000000 00000001 00000000"+zeros+g.first)
	ulpdu2 = unhex(t, g.control+"00000000 00000000 00000002 00000000"+zeros)
	fpdu2 = unhex(t, "002A"+g.control+"00000000 00000000 00000002 00000000 0000 0014"+zeros+g.second)
	return
}

// req: D01-5.2-19, D01-5.2-20, 5044-4.4-3, 5044-4.4-4, D01-5.2-13, D01-5.2-15, D01-5.2-16
// req: C02-7.2-3, C02-7.2-5, C02-7.2-6, C02-7.2-9, C02-7.2-10, D01-5.2-1
func TestGoldenFigures(t *testing.T) {
	for i, g := range goldenDumps {
		u1, f1, u2, f2 := goldenFigures(t, i)
		var s Sender
		dst := make([]byte, 600)

		s.Init(both)
		require.Equal(t, len(f1), s.Size(len(u1)), g.name)
		require.Equal(t, len(f1), s.Put(dst, [][]byte{u1}), g.name)
		require.Equal(t, f1, dst[:len(f1)], g.name)

		s.Init(both)
		first := s.Put(dst, [][]byte{make([]byte, 492-4-2-4)})
		require.Equal(t, 0x1ec, first)
		n := s.Put(dst[first:], [][]byte{u2[:18], u2[18:]})
		require.Equal(t, f2, dst[first:first+n], g.name)
		require.EqualValues(t, 0x220, s.Offset())

		// And back.
		r := newRig(t, rigConfig{Mode: both}, nil)
		require.Equal(t, Done, r.input(0, dst[:first+n]))
		require.Len(t, r.got, 2)
		require.Equal(t, string(u2), r.got[1].ulpdu)
		r = newRig(t, rigConfig{Mode: both}, nil)
		require.Equal(t, Done, r.input(0, f1))
		require.Equal(t, []passed{{0, 52, string(u1)}}, r.got)
	}
}
