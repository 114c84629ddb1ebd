package crc32c

import "encoding/binary"

// Copy copies src to the front of dst, which is at least as long, and returns Update(crc, src): of
// the octets that now stand in dst, though another goroutine may change src at the same time. dst
// and src must not overlap.
func Copy(crc uint32, dst, src []byte) uint32 {
	return copyUpdate(crc, dst[:len(dst):len(dst)][:len(src)], src)
}

// MPA's markers (RFC 5044 section 4.3): four octets in front of every 508.
const (
	markerLen = 4
	period    = 512
	between   = period - markerLen
)

// CopyMarked is Copy of src with markers: one after room octets, at most 508, and one after every
// 508 from there on, while octets follow it. A marker is a number of 32 bits, the most significant
// octet first, 512 more than the one before. It returns how many octets of dst it wrote, too; the
// CRC covers them.
func CopyMarked(crc uint32, dst, src []byte, room int, marker uint32) (uint32, int) {
	dst = dst[:len(dst):len(dst)]
	if len(src) <= room {
		return copyUpdate(crc, dst[:len(src)], src), len(src)
	}
	if uint(room) > between {
		panic("crc32c: a marker more than 508 octets away")
	}
	n := len(src) + (len(src)-room+between-1)/between*markerLen
	return copyMarked(crc, dst[:n], src, room, marker), n
}

// copyThenUpdate is Copy in two passes.
func copyThenUpdate(crc uint32, dst, src []byte) uint32 {
	copy(dst, src)
	return update(crc, dst)
}

// copyThenMark is CopyMarked in two passes.
func copyThenMark(crc uint32, dst, src []byte, room int, marker uint32) uint32 {
	n := copy(dst, src[:room])
	for rest := dst[n:]; n < len(src); marker += period {
		binary.BigEndian.PutUint32(rest, marker)
		k := copy(rest[markerLen:], src[n:min(n+between, len(src))])
		n, rest = n+k, rest[markerLen+k:]
	}
	return update(crc, dst)
}
