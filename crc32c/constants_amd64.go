//go:build !purego

package crc32c

import (
	"hash/crc32"
	"unsafe"
)

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
	blockLen  = 64  // octets in a ZMM register
	chainsMax = 256 // words of 8 octets in a chain
)

// Element d of powers is x^(8d-1) mod P, in a register of 32 bits: a factor of it moves by d octets
// and takes out the x that a product has in excess.
type powers [16*chainsMax - 4 + 1]uint32

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

// lane is what moves a register of 128 bits: its lower half, which has the earlier octets, is
// multiplied by the first number, its upper half by the second one.
type lane [2]uint64

// lane moves by d octets. The register is lower x^64 + upper.
func (w *powers) lane(d int) lane { return lane{uint64(w[d+8]) << 32, uint64(w[d]) << 32} }

// block is what moves the lanes of a ZMM register, each by its own distance.
type block [4]lane

// block moves all lanes to one place, d octets after the end of the last one.
func (w *powers) block(d int) (b block) {
	for i := range b {
		b[i] = w.lane(d + 16*(len(b)-1-i))
	}
	return b
}

// foldConstants are what updateAVX512 uses.
type foldConstants struct {
	by  [4]lane             // 1, 2, 3 and 4 blocks further, lane by lane
	end [blockLen + 1]block // to one lane, where 0 to 64 octets after the block end
}

// newFolds returns constants that begin at a line of the cache, so that each block of them has one
// line for itself.
func newFolds(w *powers) *foldConstants {
	room := make([]byte, unsafe.Sizeof(foldConstants{})+blockLen)
	c := (*foldConstants)(unsafe.Pointer(&room[-uintptr(unsafe.Pointer(&room[0]))%blockLen]))
	for i := range c.by {
		c.by[i] = w.lane(blockLen * (i + 1))
	}
	for n := range c.end {
		c.end[n] = w.block(n)
	}
	return c
}

// chainConstants are what updateChains uses: for chains of 0 to chainsMax words, what moves the CRC
// of the first chain by two chains and that of the second one by one.
type chainConstants [chainsMax + 1][2]uint64

// A CRC and a constant both stand in the lower half of 64 bits, where they mean x^32 times what
// they mean in 32 bits. The lower half of their product of 128 bits, as a register of 64 bits, then
// is what they mean in 32 bits, times x. It is added to a word of the message, which by the formula
// above is multiplied by x^32: 4 octets less to move.
func newChains(w *powers) *chainConstants {
	c := new(chainConstants)
	for n := 1; n <= chainsMax; n++ {
		c[n] = [2]uint64{uint64(w[2*8*n-4]), uint64(w[8*n-4])}
	}
	return c
}

var (
	folds  *foldConstants  //lint:ignore U1000 read in kernel_amd64.s
	chains *chainConstants //lint:ignore U1000 read in kernel_amd64.s
)

func init() {
	w := newPowers()
	folds, chains = newFolds(w), newChains(w)
}
