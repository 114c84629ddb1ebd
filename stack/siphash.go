package stack

import (
	"encoding/binary"
	"math/bits"
)

// sipHash24 is SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein, 2012), a PRF with a 128-bit key made
// for short input; RFC 6528 section 3 leaves the choice of the PRF open.
func sipHash24(k0, k1 uint64, b []byte) uint64 {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^m)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^last)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v2 = v0^last, v2^0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

// sipRound is small enough to be inlined, which keeps all four in registers.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
