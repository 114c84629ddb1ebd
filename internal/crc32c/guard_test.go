//go:build unix

package crc32c

import (
	"hash/crc32"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded returns two pages between which and anything else there is nothing: where a kernel reads
// or writes beyond its octets, the program ends.
func guarded(t *testing.T) []byte {
	page := os.Getpagesize()
	room, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(room)) })
	usable := room[page : 3*page : 3*page]
	copy(usable, noise(len(usable)))
	require.NoError(t, unix.Mprotect(room[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(room[3*page:], unix.PROT_NONE))
	return usable
}

func TestReadsNothingElse(t *testing.T) {
	readable := guarded(t)
	forAll(t, func(t *testing.T, update func(uint32, []byte) uint32) {
		for n := range len(readable) + 1 {
			same(t, update, 0, readable[:n])
			same(t, update, 0, readable[len(readable)-n:])
		}
	})
}

func TestCopiesNothingElse(t *testing.T) {
	src, dst := guarded(t), guarded(t)
	for n := range len(src) + 1 {
		want := crc32.Update(0, castagnoli, src[:n])
		require.True(t, want == Copy(0, dst[:n], src[:n]), n)
		require.True(t, want == Copy(0, dst[len(dst)-n:], src[:n]), n)
		want = crc32.Update(0, castagnoli, src[len(src)-n:])
		require.True(t, want == Copy(0, dst[:n], src[len(src)-n:]), n)
		require.True(t, want == Copy(0, dst[len(dst)-n:], src[len(src)-n:]), n)
		room := n % 509
		k := n
		if n > room {
			k += (n - room + 507) / 508 * 4
		}
		if k <= len(dst) {
			CopyMarked(0, dst[:k], src[:n], room, 0)
			CopyMarked(0, dst[len(dst)-k:], src[len(src)-n:], room, 0)
		}
	}
}

// The CRC is of what stands in dst, whatever is done to src meanwhile: each octet of src is read
// once. (In memory that is not Go's, so that the race detector leaves it alone.)
func TestCopyOfWhatChanges(t *testing.T) {
	src, dst := guarded(t), make([]byte, 9000)
	var stop atomic.Bool
	var passes atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := byte(0); !stop.Load(); i++ {
			for at := 0; at < len(src); at += 16 {
				src[at] = i
			}
			passes.Add(1)
		}
	}()
	wrong := 0
	for i := 0; i < 20000 || passes.Load() < 400000; i++ { // both, as the other may not run yet
		n := 1 + i%len(src)
		if Copy(1, dst, src[:n]) != crc32.Update(1, castagnoli, dst[:n]) {
			wrong++
		}
		if crc, n := CopyMarked(1, dst, src[:n], i%509, 0); crc != crc32.Update(1, castagnoli, dst[:n]) {
			wrong++
		}
	}
	stop.Store(true)
	<-ended
	require.Zero(t, wrong)
}
