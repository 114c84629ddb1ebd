package transport

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// No connection ever lacks a Buf, however much all of them keep, and however many there are; pools
// without connections go, and what is left has all of its Bufs again.
func TestBufPools(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const kept, most = 3, 300
	type conn struct {
		pool *bufPool
		bufs []mem.Buf
	}
	var pools bufPools
	var conns []*conn
	end := func(i int) {
		c := conns[i]
		c.pool.FreeN(c.bufs)
		pools.give(c.pool)
		conns[i] = conns[len(conns)-1]
		conns = conns[:len(conns)-1]
	}
	read := func(c *conn) {
		room := c.pool.slots(nil)
		require.Len(t, room, readSlots)
		for i := range 1 + rng.IntN(readSlots) {
			if len(c.bufs) == kept+readSlots+1 { // the Upper has taken the oldest
				c.pool.Free(c.bufs[0])
				c.bufs = c.bufs[1:]
			}
			b := c.pool.taken(i)
			require.NotEqual(t, mem.NoBuf, b)
			require.Same(t, &c.pool.Slot(b)[mem.Headroom], &room[i][0])
			c.bufs = append(c.bufs, b)
		}
	}
	for _, target := range []int{most, 0, most / 2, 1, most, 0} {
		for len(conns) != target {
			switch up := len(conns) < target; {
			case len(conns) > 0 && rng.IntN(3) == 0:
				read(conns[rng.IntN(len(conns))])
			case up == (rng.IntN(4) > 0) && len(conns) < most:
				conns = append(conns, &conn{pool: pools.take(kept)})
			case len(conns) > 0:
				end(rng.IntN(len(conns)))
			}
		}
		for _, c := range conns {
			for range kept + readSlots + 1 {
				read(c)
			}
		}
		in := map[*bufPool]int{}
		for _, c := range conns {
			in[c.pool]++
		}
		for p, n := range in {
			require.Equal(t, n, p.conns)
			require.Equal(t, n == p.most, p.at < 0)
		}
		require.Equal(t, max(1, len(in)), pools.all)
	}
	require.Len(t, pools.open, 1)
	last := pools.open[0]
	last.slots(nil)
	require.Equal(t, last.Size()-readSlots, last.Available())
	pools.close()
	require.Zero(t, pools.all)
	require.Empty(t, pools.open)
}
