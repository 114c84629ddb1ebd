//go:build (amd64 || arm64) && !purego

package crc32c

import "hash/crc32"

// The arithmetic. Octets are a polynomial over GF(2), the lowest bit of the first octet being its
// highest power; so in a register of n bits, bit i is x^(n-1-i). A CRC is the remainder of that
// polynomial, times x^32, by P:
//
//	next(crc, octets) = (crc x^(8 len(octets)) + octets x^32) mod P
//
// (The CRC's inversion before and after is left out here.) A part of the message times x^(8d) mod P
// is what that part would be with d zero octets after it. So parts can be moved to where the
// message ends, each by its own distance, and added up there: that is all that the kernels do. The
// carry-less product of two registers of 64 bits has 127 bits and stands in 128 from bit 0 on; read
// as above, it is the product times x.

const (
	chainsMax = 256      // words of 8 octets in a chain
	pieceMax  = 9 * 1024 // octets that are computed at once; more goes piece by piece
)

// Element d of powers is x^(8d-1) mod P, in a register of 32 bits: a factor of it moves by d octets
// and takes out the x that a product has in excess.
//
// A CRC and such a constant both stand in the lower half of 64 bits, where they mean x^32 times
// what they mean in 32 bits. The lower half of their product of 128 bits, as a register of 64 bits,
// then is what they mean in 32 bits, times x. It is added to the last word of the message before
// that word is taken in, which by the formula above multiplies it by x^32: 4 octets less to move.
type powers [pieceMax]uint32

func newPowers() *powers {
	w := new(powers)
	// x^-1 is (P-1)/x, as P has an x^0. The library's constant is P without its x^32; x^31, which
	// that becomes, is bit 0.
	p := uint32(crc32.Castagnoli&^(1<<31))<<1 | 1
	for d := range w {
		w[d] = p
		p = p>>8 ^ castagnoli[byte(p)] // times x^8, as for an octet that is 0
	}
	return w
}

// chainConstants are what updateChains uses: for chains of 0 to chainsMax words, what moves the CRC
// of the first chain by two chains and that of the second one by one.
type chainConstants [chainsMax + 1][2]uint64

func newChains(w *powers) *chainConstants {
	c := new(chainConstants)
	for n := 1; n <= chainsMax; n++ {
		c[n] = [2]uint64{uint64(w[2*8*n-4]), uint64(w[8*n-4])}
	}
	return c
}
