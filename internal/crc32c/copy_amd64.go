//go:build !race && !purego

package crc32c

// copyMin is how many octets are worth copyAVX512.
const copyMin = blockLen + 1

func copyUpdate(crc uint32, dst, src []byte) uint32 {
	if !hasAVX512 || len(src) < copyMin {
		return copyThenUpdate(crc, dst, src)
	}
	for len(src) > pieceMax+blockLen {
		crc = copyAVX512(crc, &dst[0], &src[0], pieceMax)
		dst, src = dst[pieceMax:], src[pieceMax:]
	}
	if len(src) > pieceMax {
		half := len(src) / 2
		crc = copyAVX512(crc, &dst[0], &src[0], half)
		dst, src = dst[half:], src[half:]
	}
	return copyAVX512(crc, &dst[0], &src[0], len(src))
}

func copyMarked(crc uint32, dst, src []byte, room int, marker uint32) uint32 {
	if !hasAVX512 {
		return copyThenMark(crc, dst, src, room, marker)
	}
	const periods = pieceMax/period - 1
	for len(dst) > pieceMax {
		n, size := room+periods*between, room+periods*period
		crc = copyMarkedAVX512(crc, &dst[:size][0], &src[:n][0], n, size, room, marker)
		dst, src = dst[size:], src[n:]
		room, marker = 0, marker+periods*period
	}
	return copyMarkedAVX512(crc, &dst[0], &src[0], len(src), len(dst), room, marker)
}

// copyAVX512 is Copy of blockLen+1 to pieceMax octets. Crc is moved to the end and added there, so
// that nothing waits for it.
//
//go:noescape
func copyAVX512(crc uint32, dst, src *byte, n int) uint32

// copyMarkedAVX512 is CopyMarked of n octets, more than room, to size octets, up to pieceMax. It
// holds at least one marker, and ends with an octet of the source.
//
//go:noescape
func copyMarkedAVX512(crc uint32, dst, src *byte, n, size, room int, marker uint32) uint32
