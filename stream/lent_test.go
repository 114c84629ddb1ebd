package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
)

// Nothing is joined to octets that lie in a Buf which its sender may still read: what stands after
// them there may be the sender's, and was not taken.
func TestNothingIsJoinedToALentBuf(t *testing.T) {
	cfg := mem.PoolConfig{Bufs: 2, Stride: 256, Headroom: 64}
	pair := must(mem.NewPair(hugepages.Heap(2*cfg.Bytes()), cfg))(t)
	pool, sender := pair[0], pair[1]
	for _, lent := range []bool{false, true} {
		b := pool.Alloc()
		if lent {
			pool.Free(b)
			b = sender.Alloc()
			pool.Adopt(b)
		}
		var r recvRing
		r.init(2, 1024)
		r.push(b, 64, 10)
		require.Equal(t, !lent, r.extend(pool, []byte("x")))

		ps := &pollerState{pool: pool, pieces: make([]piece, pool.Size())}
		list := noEarly
		ps.insert(&list, b, 100, 64, 10)
		require.Equal(t, !lent, ps.merge(&list, 110, []byte("x")))
		pool.Free(b)
	}
}
