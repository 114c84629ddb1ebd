//go:build !purego

package crc32c

import "unsafe"

const (
	blockLen  = 64           // octets in a ZMM register
	blocksMax = 4 * blockLen // octets after the last whole round of four, at most
)

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

// foldConstants are what the kernels with vectors use. XMM and YMM registers are multiplied by
// parts of the blocks for ZMM registers. (What most kernels use stands together: a page of the
// TLB.)
type foldConstants struct {
	by  [4]lane                           // 1, 2, 3 and 4 blocks further, lane by lane
	end [blocksMax + 3*blockLen + 1]block // to one lane, where so many octets after the block end
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

var (
	moves  *powers         //lint:ignore U1000 read in assembly
	folds  *foldConstants  //lint:ignore U1000 read in assembly
	chains *chainConstants //lint:ignore U1000 read in assembly
)

func init() {
	moves = newPowers()
	folds, chains = newFolds(moves), newChains(moves)
}
