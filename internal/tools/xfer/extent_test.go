package xfer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fits is the naive oracle: the first aligned place where n octets touch no other extent's pages.
func fits(e *extents, n int) (off int, ok bool) {
	page := func(x int) int { return (x + extentAlign - 1) / extentAlign }
	for off = 0; off <= e.size && n <= e.size-off; off += extentAlign {
		free := true
		for _, u := range e.used {
			if n > 0 && u.n > 0 && off/extentAlign < page(u.off+u.n) && u.off/extentAlign < page(off+n) {
				free = false
			}
		}
		if free {
			return off, true
		}
	}
	return 0, false
}

func TestExtentsOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		e := extents{size: rng.IntN(40 * extentAlign)}
		var held []extent
		for range 300 {
			if len(held) > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(len(held))
				e.give(held[i])
				held = append(held[:i], held[i+1:]...)
			} else {
				n := rng.IntN(6 * extentAlign)
				if rng.IntN(4) == 0 {
					n = rng.IntN(3) * extentAlign
				}
				off, want := fits(&e, n)
				x, ok := e.take(n)
				require.Equalf(t, want, ok, "%d octets among %v of %d", n, held, e.size)
				if ok {
					require.Equalf(t, extent{off, n}, x, "among %v", held)
					held = append(held, x)
				}
			}
			require.Equal(t, len(held), e.inUse())
			require.ElementsMatch(t, held, e.used)
		}
		for _, x := range held {
			e.give(x)
		}
		x, ok := e.take(e.size)
		require.True(t, ok, "all given back: all to be had")
		require.Equal(t, extent{0, e.size}, x)
	}
}

func TestExtents(t *testing.T) {
	e := extents{size: 3*extentAlign + 1}
	a, ok := e.take(1)
	require.True(t, ok)
	b, ok := e.take(extentAlign + 1)
	require.True(t, ok)
	require.Equal(t, extent{extentAlign, extentAlign + 1}, b)
	_, ok = e.take(2)
	require.False(t, ok)
	c, ok := e.take(1)
	require.True(t, ok, "the last octet")
	require.Equal(t, extent{3 * extentAlign, 1}, c)
	e.give(a)
	_, ok = e.take(extentAlign + 1)
	require.False(t, ok)
	_, ok = e.take(extentAlign)
	require.True(t, ok)
	require.Panics(t, func() { e.give(extent{7, 7}) })
}
