//go:build !purego

package crc32c

import (
	"math/big"
	"math/bits"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// What the kernels multiply by is x^(8d-1) mod P, here by long division of numbers whose bit i is
// x^i.
func TestPowers(t *testing.T) {
	p := new(big.Int).SetUint64(0x11edc6f41) // RFC 3720 section 12.1
	remainder := func(n int) uint32 {
		v := new(big.Int).Lsh(big.NewInt(1), uint(n))
		for v.BitLen() > 32 {
			v.Xor(v, new(big.Int).Lsh(p, uint(v.BitLen()-p.BitLen())))
		}
		return uint32(v.Uint64())
	}
	w := newPowers()
	for d := 1; d < 300; d++ {
		require.Equalf(t, remainder(8*d-1), bits.Reverse32(w[d]), "%d octets", d)
	}
	for _, d := range []int{1000, 2044, 2045, len(w) - 1} {
		require.Equalf(t, remainder(8*d-1), bits.Reverse32(w[d]), "%d octets", d)
	}

	// x times x^-1 is 1.
	inverse := uint64(bits.Reverse32(w[0])) << 1
	require.EqualValues(t, 1, inverse^p.Uint64())
}

// Each distance's constants have a line of the cache to themselves.
func TestConstantsAligned(t *testing.T) {
	for range 100 {
		require.Zero(t, uintptr(unsafe.Pointer(newFolds(newPowers())))%blockLen)
	}
}
