package mem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
)

func newPair(t testing.TB, bufs int) [2]*Pool {
	t.Helper()
	cfg := PoolConfig{Bufs: bufs, Stride: 256}
	return must(NewPair(hugepages.Heap(2*cfg.Bytes()), cfg))(t)
}

// Each Pool of a pair gives out its own Bufs and takes the other's by Adopt, under the same number
// and in the same memory.
func TestPair(t *testing.T) {
	pair := newPair(t, 3)
	seen := map[Buf]bool{}
	for i, p := range pair {
		require.Same(t, pair[1-i], p.Pair())
		require.Equal(t, 6, p.Size())
		require.Equal(t, 3, p.Available())
		var bufs [4]Buf
		require.Equal(t, 3, p.AllocN(bufs[:]))
		for _, b := range bufs[:3] {
			require.False(t, seen[b])
			seen[b] = true
			require.False(t, p.Lent(b))
			require.True(t, pair[1-i].Lent(b))
			require.Same(t, &p.Slot(b)[0], &pair[1-i].Slot(b)[0])
			require.Panics(t, func() { p.Adopt(b) }, "its own")
		}
		require.Panics(t, func() { p.Reserve(1) })
		p.FreeN(bufs[:3])
	}
	require.Nil(t, newPool(t, 1, 256).Pair())
	require.False(t, newPool(t, 1, 256).Lent(0))
}

// A Buf that is lent goes back by TakeReturned, with nothing of its frame in the Desc.
func TestLentBufGoesBack(t *testing.T) {
	pair := newPair(t, 2)
	for i, p := range pair {
		b := pair[1-i].Alloc()
		require.Equal(t, Desc{Off: Headroom}, *p.Desc(b))
		p.Adopt(b)
		p.Desc(b).Len = 5
		p.Free(b)
		var back [4]Buf
		require.Equal(t, 1, p.TakeReturned(back[:]))
		require.Equal(t, b, back[0])
		require.Equal(t, Desc{Off: Headroom}, *p.Desc(b))
		pair[1-i].Free(b)
		require.Equal(t, 2, p.Available())
	}
}

// Own copies a lent Buf, and leaves it where it cannot.
func TestOwn(t *testing.T) {
	pair := newPair(t, 1)
	a, b := pair[0], pair[1]
	lent := a.Alloc()
	a.Desc(lent).Len = 3
	copy(a.Data(lent), "abc")
	b.Adopt(lent)
	*b.Desc(lent) = Desc{Off: Headroom, Len: 3, Flags: RxChecksumGood}

	own := b.Alloc()
	require.Equal(t, own, b.Own(own), "is written to as it is")
	require.Equal(t, NoBuf, b.Own(lent), "no Buf")
	b.Free(own)
	own = b.Own(lent)
	require.False(t, b.Lent(own))
	require.Equal(t, Desc{Off: Headroom, Len: 3, Flags: RxChecksumGood}, *b.Desc(own))
	b.Data(own)[0] = 'x'
	require.Equal(t, "xbc", string(b.Data(own)))
	require.Equal(t, "abc", string(a.Data(lent)))
	var back [2]Buf
	require.Equal(t, 1, b.TakeReturned(back[:]))
}

func TestPairRefused(t *testing.T) {
	_, err := NewPair(hugepages.Heap(1<<16), PoolConfig{Bufs: 1 << 30, Stride: 256})
	require.ErrorContains(t, err, "at most half as many in a pair")
	_, err = NewPair(hugepages.Heap(1<<16), PoolConfig{Bufs: 1, Stride: 100})
	require.ErrorContains(t, err, "a multiple of 64")
	_, err = NewPair(hugepages.Heap(256), PoolConfig{Bufs: 1, Stride: 256})
	require.ErrorContains(t, err, "two pools of 1 buffers")
}
