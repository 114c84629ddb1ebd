package inet

import (
	"encoding/binary"
	"math/bits"
)

// The Internet checksum (RFC 1071). A running sum is a uint64 that stands for its value modulo
// 65535; it is 0 only when all that went into it was 0. What makes Sum fast, by RFC 1071, 2:
//
//	(A) 64-bit words may be added in place of 16-bit ones, as 65535 divides 2^64-1: the carry comes back in at the
//	    bottom ("end-around") and nothing is lost before Fold.
//	(B) Words loaded with their octets swapped give the swapped sum: one swap at the end in place of one per load.

// Sum adds b, as big-endian 16-bit words, to a ones-complement sum; Fold makes 16 bits of it. The
// odd last octet is padded with zero, so only the last part of what is summed may be odd.
func Sum(b []byte, s uint64) uint64 {
	var sum, carry uint64
	le := binary.LittleEndian
	for len(b) >= 64 {
		p := (*[64]byte)(b)
		sum, carry = bits.Add64(sum, le.Uint64(p[0:8]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[8:16]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[16:24]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[24:32]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[32:40]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[40:48]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[48:56]), carry)
		sum, carry = bits.Add64(sum, le.Uint64(p[56:64]), carry)
		b = b[64:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, le.Uint64(b), carry)
		b = b[8:]
	}
	sum, carry = bits.Add64(sum, tail(b), carry)
	sum += carry // no overflow: after a carry sum is below tail, which is below 2^56
	sum, carry = bits.Add64(uint64(bits.ReverseBytes16(Fold(sum))), s, 0)
	return sum + carry
}

// tail is the last 0 to 7 octets as a little-endian number, padded with zero.
func tail(b []byte) (v uint64) {
	le := binary.LittleEndian
	if len(b) >= 4 {
		n := len(b) - 4
		// The two loads overlap; what the second repeats is shifted out.
		return uint64(le.Uint32(b)) | uint64(le.Uint32(b[n:]))>>(32-8*n)<<32
	}
	if len(b) >= 2 {
		v = uint64(le.Uint16(b))
		if len(b) == 3 {
			v |= uint64(b[2]) << 16
		}
		return v
	}
	if len(b) == 1 {
		v = uint64(b[0])
	}
	return v
}

// Fold brings a sum to 16 bits: folded, not complemented. 0 stays 0, any other multiple of 65535
// becomes 0xffff. Over data that holds its own checksum the result is 0xffff when that is right.
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff // at most 2^33-2
	s = s>>16 + s&0xffff     // at most 0x2fffe
	s = s>>16 + s&0xffff     // at most 0x10000
	return uint16(s>>16 + s)
}

// PseudoSum is the sum of the pseudo header that TCP puts before its own (RFC 9293, 3.1; RFC 8200,
// 8.1). length is that of the transport header and data. Src and dst are of one family. The prefix
// of a v4-mapped address is 0xffff, which counts for nothing modulo 65535, so one way of summing
// serves both families without a branch.
func PseudoSum(src, dst Addr, proto uint8, length int) uint64 {
	sum, carry := bits.Add64(src.high(), src.low(), 0)
	sum, carry = bits.Add64(sum, dst.high(), carry)
	sum, carry = bits.Add64(sum, dst.low(), carry)
	sum, carry = bits.Add64(sum, uint64(uint32(length))+uint64(proto), carry)
	return sum + carry // no overflow, as in Sum
}

// Checksum is ^Fold(Sum(b, s)): what a header's checksum field is to hold, and 0 over data that
// holds it.
func Checksum(b []byte, s uint64) uint16 { return ^Fold(Sum(b, s)) }

// UpdateChecksum is the checksum after one aligned 16-bit word of the data went from old to new
// (RFC 1624, equation 3). When the data is all zero afterwards it gives 0 where the sum over it
// would give 0xffff (RFC 1624, 5); a header with any field that is never 0 is safe from that.
func UpdateChecksum(checksum, old, new uint16) uint16 {
	return ^Fold(uint64(^checksum) + uint64(^old) + uint64(new))
}
