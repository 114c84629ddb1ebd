package ddp

import (
	"bytes"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// As many octets are copied as both have, from and to any address, and nothing around them is
// written.
func TestCopyOctets(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	src := make([]byte, 70_000)
	for i := range src {
		src[i] = byte(draw.Uint32())
	}
	for range 300 {
		from, to, n := draw.IntN(100), 64+draw.IntN(100), draw.IntN(len(src)-100)
		if draw.IntN(2) == 0 {
			n = 4000 + draw.IntN(200)
		}
		longer := draw.IntN(2) * draw.IntN(100)
		room := bytes.Repeat([]byte{0xa5}, to+n+64)
		require.Equal(t, n, copyOctets(room[to:to+n], src[from:min(from+n+longer, len(src))]),
			"seed %d", seed)
		require.True(t, bytes.Equal(src[from:from+n], room[to:to+n]), "seed %d", seed)
		require.Equal(t, bytes.Repeat([]byte{0xa5}, to), room[:to], "seed %d", seed)
		require.Equal(t, bytes.Repeat([]byte{0xa5}, 64), room[to+n:], "seed %d", seed)
	}
	require.Equal(t, 5000, copyOctets(make([]byte, 6000), src[:5000]), "less than there is room for")
	require.Zero(t, copyOctets(nil, src))
}

// Memory that is gone, whether it is the source or the destination, is told by a panic, as
// debug.SetPanicOnFault has it.
func TestCopyOctetsOfMemoryThatIsGone(t *testing.T) {
	const octets = 16 << 10
	gone, err := unix.Mmap(-1, 0, octets, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(gone)) }()
	there := make([]byte, octets)
	for _, move := range []func(){
		func() { copyOctets(gone, there) }, func() { copyOctets(there, gone) },
	} {
		require.Panics(t, func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			move()
		})
	}
}
