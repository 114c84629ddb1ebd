package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// sameCopy compares Copy with the library's copy and hash/crc32, around dst too. It returns the
// CRC.
func sameCopy(t require.TestingT, crc uint32, room []byte, at int, src []byte) {
	const edge = 65
	for i := range edge {
		room[at+i], room[at+edge+len(src)+i] = 0xa5, 0x5a
	}
	dst := room[at+edge:]
	want, got := crc32.Update(crc, castagnoli, src), Copy(crc, dst, src)
	if got != want || string(dst[:len(src)]) != string(src) {
		require.Failf(t, "Copy", "%d octets after %#x: %#x, want %#x", len(src), crc, got, want)
	}
	for i := range edge {
		if room[at+i] != 0xa5 || room[at+edge+len(src)+i] != 0x5a {
			require.Failf(t, "Copy", "%d octets: one written %d beyond", len(src), i)
		}
	}
}

func TestCopyLengths(t *testing.T) {
	src, room := noise(30000), make([]byte, 31000)
	for _, at := range []int{0, 1, 6, 16, 63} {
		for n := range 1500 {
			sameCopy(t, uint32(n)*0x9e3779b9, room, 70-at, src[at:at+n])
		}
		for n := 1500; n < len(src)-at; n += 61 {
			sameCopy(t, uint32(n), room, at, src[at:at+n])
		}
		for n := pieceOctets - 70; n < pieceOctets+140; n++ {
			sameCopy(t, uint32(n), room, at, src[at:at+n])
			sameCopy(t, uint32(n), room, at, src[at:at+2*n])
		}
	}
}

// pieceOctets is pieceMax where there is one.
const pieceOctets = 9 * 1024

func TestCopyShort(t *testing.T) {
	require.Panics(t, func() { Copy(0, make([]byte, 1000, 2000), make([]byte, 1001)) })
	require.Panics(t, func() { CopyMarked(0, make([]byte, 1023, 2000), make([]byte, 1016), 0, 0) })
	require.Panics(t, func() { CopyMarked(0, make([]byte, 1024, 2000), make([]byte, 1017), 500, 0) })
	require.Panics(t, func() { CopyMarked(0, make([]byte, 2000), make([]byte, 1017), 509, 0) })
	require.Panics(t, func() { CopyMarked(0, make([]byte, 2000), make([]byte, 1017), -1, 0) })
}

// marked is CopyMarked, octet by octet.
func marked(src []byte, room int, marker uint32) (b []byte) {
	for i, octet := range src {
		if i >= room && (i-room)%508 == 0 {
			b = binary.BigEndian.AppendUint32(b, marker)
			marker += 512
		}
		b = append(b, octet)
	}
	return b
}

// Every distance to the first marker, and the lengths around every one that makes a difference.
func TestCopyMarked(t *testing.T) {
	src, dst := noise(20000), make([]byte, 21000)
	try := func(n, at, room int, crc, marker uint32) {
		clear(dst)
		want := marked(src[at:at+n], room, marker)
		got, k := CopyMarked(crc, dst[at:], src[at:at+n], room, marker)
		if k != len(want) || string(dst[at:at+k]) != string(want) ||
			got != crc32.Update(crc, castagnoli, want) {
			require.Failf(t, "CopyMarked", "%d octets, the first marker after %d: %d written", n, room, k)
		}
		for i, octet := range dst {
			if octet != 0 && (i < at || i >= at+k) {
				require.Failf(t, "CopyMarked", "%d octets, the first marker after %d: wrote at %d",
					n, room, i-at)
			}
		}
	}
	step := 7
	if testing.Short() {
		step = 97
	}
	for room := 0; room <= 508; room++ {
		for n := room % step; n < 1600; n += step {
			try(n, n%67, room, uint32(n)*0x9e3779b9, uint32(n))
		}
		for n := 1600 + room; n < len(src)-67; n += 1270 {
			try(n, n%67, room, uint32(n)*0x9e3779b9, 0xfffffe00)
		}
	}
	for n := pieceOctets - 200; n < pieceOctets+200; n++ {
		for _, room := range []int{0, 1, 4, 255, 256, 257, 508} {
			try(n, n%67, room, uint32(n), 8)
		}
	}
}

func TestAllocates(t *testing.T) {
	src, dst := noise(8900), make([]byte, 9000)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		Update(0, src[:18])
		Update(0, src)
		Copy(0, dst, src)
		CopyMarked(0, dst, src, 100, 0)
	}))
}

func FuzzCopy(f *testing.F) {
	for _, n := range []int{0, 1, 64, 65, 320, 321, 508, 1016, 1444, 9217} {
		f.Add(uint32(n), noise(n))
	}
	f.Fuzz(func(t *testing.T, crc uint32, src []byte) {
		sameCopy(t, crc, make([]byte, len(src)+200), len(src)%64, src)
		room := int(crc % 509)
		dst, want := make([]byte, len(src)/508*4+4+len(src)), marked(src, room, crc)
		got, n := CopyMarked(crc, dst, src, room, crc)
		require.Equal(t, string(want), string(dst[:n]))
		require.Equal(t, crc32.Update(crc, castagnoli, want), got)
	})
}
