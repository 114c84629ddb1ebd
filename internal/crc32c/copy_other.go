//go:build !amd64 || race || purego

package crc32c

func copyUpdate(crc uint32, dst, src []byte) uint32 { return copyThenUpdate(crc, dst, src) }

func copyMarked(crc uint32, dst, src []byte, room int, marker uint32) uint32 {
	return copyThenMark(crc, dst, src, room, marker)
}
