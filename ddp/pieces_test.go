package ddp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever the pieces are cut into, and wherever they and the destination begin: what is placed is
// what they hold, and nothing around it is written.
func TestCopyPieces(t *testing.T) {
	octets := make([]byte, 20000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(octets)
	rapid.Check(t, func(rt *rapid.T) {
		var pieces [][]byte
		var want []byte
		for range rapid.IntRange(0, 20).Draw(rt, "pieces") {
			n := rapid.SampledFrom([]int{0, 1, 31, 32, 33, 63, 64, 127, 128, 129, 160, 161, 508, 1460}).Draw(
				rt, "octets")
			if rapid.Bool().Draw(rt, "any") {
				n = rapid.IntRange(0, 700).Draw(rt, "length")
			}
			at := rapid.IntRange(0, len(octets)-n).Draw(rt, "at")
			pieces = append(pieces, octets[at:at+n:at+n])
			want = append(want, pieces[len(pieces)-1]...)
		}
		skip := rapid.IntRange(0, min(len(want), 40)).Draw(rt, "skip")
		want = want[skip:]
		at := rapid.IntRange(64, 128).Draw(rt, "to")
		room := bytes.Repeat([]byte{0xa5}, at+len(want)+64)
		copyPieces(room[at:at+len(want)], skip, pieces)
		require.True(rt, bytes.Equal(want, room[at:at+len(want)]))
		require.Equal(rt, bytes.Repeat([]byte{0xa5}, at), room[:at])
		require.Equal(rt, bytes.Repeat([]byte{0xa5}, 64), room[at+len(want):])
	})
}

// Pieces that are not as long as the destination are the caller's fault, of whatever length; even
// then nothing after it is written.
func TestCopyPiecesOfAnotherLength(t *testing.T) {
	for _, n := range []int{8, 508} {
		pieces := make([][]byte, 6)
		for i := range pieces {
			pieces[i] = bytes.Repeat([]byte{1}, n)
		}
		copyPieces(make([]byte, 6*n-14), 14, pieces)
		for _, wrong := range []int{0, 6*n - 15, 6*n - 13} {
			room := make([]byte, 7*n)
			require.Panics(t, func() { copyPieces(room[:wrong], 14, pieces) })
			require.Equal(t, make([]byte, 7*n-wrong), room[wrong:])
		}
	}
}
