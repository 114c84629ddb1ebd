//go:build unix

package crc32c

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// No kernel reads in front of its octets or after them: there the program would end.
func TestReadsNothingElse(t *testing.T) {
	page := os.Getpagesize()
	room, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(room)) })
	readable := room[page : 3*page]
	copy(readable, noise(len(readable)))
	require.NoError(t, unix.Mprotect(room[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(room[3*page:], unix.PROT_NONE))
	forAll(t, func(t *testing.T, update func(uint32, []byte) uint32) {
		for n := range len(readable) + 1 {
			same(t, update, 0, readable[:n])
			same(t, update, 0, readable[len(readable)-n:])
		}
	})
}
