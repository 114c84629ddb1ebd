package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The vectors are those of the authors' reference implementation: key 00 01 .. 0f, input 00 01 ..
// n-1.
func TestSipHash24(t *testing.T) {
	const k0, k1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 2: 0x0d6c8009d9a94f5a,
		8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		in := make([]byte, n)
		for i := range in {
			in[i] = byte(i)
		}
		require.Equal(t, want, sipHash24(k0, k1, in), "length %d", n)
	}
}
