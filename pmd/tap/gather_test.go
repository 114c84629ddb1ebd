package tap

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The short cut never coalesces what the long way would not: whichever octet of the headers is
// another one, and with two of them, too.
func TestRepeatsIsNoWiderThanFollows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, v6 := range []bool{false, true} {
		s := spec{v6: v6, df: true, flags: flagACK, payload: someOctets[:100]}
		first, start, offset := s.build()
		h, ok := parseHeaders(first, int(start), int(offset))
		require.True(t, ok)
		seen := [2]int{}
		for k := 1; k < 3; k++ {
			next := append([]byte(nil), first...)
			putSeq(next, h.l4, getSeq(first, h.l4)+uint32(100*k))
			require.True(t, h.follows(first, next, k) && h.repeats(first, next, k), "v6 %v", v6)
			require.False(t, h.repeats(first, next[:len(next)-1], k), "shorter")
			require.False(t, h.repeats(first, next, k+1), "a gap")
			for range 20000 {
				f := append([]byte(nil), next...)
				for range 1 + r.IntN(2) {
					f[r.IntN(h.len)] ^= 1 << r.IntN(8)
				}
				if h.repeats(first, f, k) {
					require.True(t, h.follows(first, f, k), "%x", f[:h.len])
					seen[1]++
				} else {
					seen[0]++
				}
			}
		}
		require.NotZero(t, seen[0])
		require.NotZero(t, seen[1], "FIN and PSH")
		if v6 {
			continue
		}
		again := append([]byte(nil), first...) // without DF the identification must count up
		for _, f := range [][]byte{first, again} {
			f[h.l3+6] &^= 0x40
			h.setIPv4(f, h.l3+4, get(f, h.l3+4))
		}
		putSeq(again, h.l4, getSeq(first, h.l4)+100)
		require.False(t, h.repeats(first, again, 1))
	}
}
