package mem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
)

// A Pool that circulates uses the Buf that has been free for longest; one that does not, the one
// that was freed last. Only so many take part, whatever the Pool has.
func TestBufsTakeTurns(t *testing.T) {
	const stride = 64 << 10
	most := turnsOctets / stride
	cfg := PoolConfig{Bufs: 3 * most, Stride: stride}
	p := must(NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
	b := p.Alloc()
	p.Free(b)
	require.Equal(t, b, p.Alloc(), "freed last")
	p.Free(b)

	p.Circulate()
	var order []Buf
	for range 3 * most {
		b := p.Alloc()
		order = append(order, b)
		p.Free(b)
	}
	require.Equal(t, order[:most], order[most:2*most])
	require.Equal(t, order[:most], order[2*most:])
	seen := map[Buf]bool{}
	for _, b := range order[:most] {
		require.False(t, seen[b], "each once")
		seen[b] = true
	}

	all := make([]Buf, 3*most)
	require.Equal(t, 3*most, p.AllocN(all),
		"those that take no part are used when there are no others")
	require.Equal(t, NoBuf, p.Alloc())
	p.FreeN(all)
	require.Equal(t, 3*most, p.Available())
	clear(seen)
	for range 3 * most {
		b := p.Alloc()
		seen[b] = true
		p.Free(b)
	}
	require.Len(t, seen, most, "no more than before, though all were in use once")
}
