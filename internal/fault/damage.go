package fault

import (
	"math/rand/v2"

	"github.com/rnicd/rnicd/pmd"
)

// flipBits flips one to three bits of frame, each a different one.
func flipBits(frame []byte, rng *rand.Rand) {
	if len(frame) == 0 {
		return
	}
	bits := len(frame) * 8
	first := rng.IntN(bits)
	frame[first/8] ^= 1 << (first % 8)
	// Neighbours of the first: a burst, and never the same bit again, which would undo it.
	for k := range rng.IntN(3) {
		at := (first + k + 1) % bits
		frame[at/8] ^= 1 << (at % 8)
	}
}

// truncated is a shorter length that leaves the Ethernet header, or n when there is none.
func truncated(n uint32, rng *rand.Rand) uint32 {
	if n <= pmd.EthernetLen {
		return n
	}
	return pmd.EthernetLen + rng.Uint32N(n-pmd.EthernetLen)
}

// swapWords exchanges two different 16-bit words of the TCP payload. The Internet checksum is a sum
// and does not see the order of its words (RFC 1071 section 2), so only a CRC above TCP finds this.
// It says where the words stand in frame. False: no TCP payload with two different words; frame is
// untouched.
func swapWords(frame []byte, rng *rand.Rand) (at [2]int, ok bool) {
	f, ok := findTCP(frame)
	if !ok {
		return at, false
	}
	// from an even offset of the TCP header on, where checksum words begin
	words := frame[f.data:f.end]
	n := len(words) / 2
	if n < 2 {
		return at, false
	}
	// From a random word, look for the nearest one after it, in a circle, that is different.
	start := rng.IntN(n)
	skip := 1 + rng.IntN(n-1)
	a := words[2*start:]
	for k := range n - 1 {
		other := (start + 1 + (skip-1+k)%(n-1)) % n
		b := words[2*other:]
		if a[0] != b[0] || a[1] != b[1] {
			a[0], b[0] = b[0], a[0]
			a[1], b[1] = b[1], a[1]
			return [2]int{f.data + 2*start, f.data + 2*other}, true
		}
	}
	return at, false
}
