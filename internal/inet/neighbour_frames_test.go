package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Lists against slices: no node is lost, none is in two lists, order holds.
func TestFrameStoreOracle(t *testing.T) {
	r := dice(t)
	const framesMax = 12
	var f frameStore[*int]
	f.init(framesMax)
	var waiting [3]frameList
	var want [3][]*int
	var ready, dropped []*int
	held := 0
	for range 50000 {
		k := r.IntN(3)
		switch r.IntN(6) {
		case 0, 1, 2:
			v := new(int)
			require.Equal(t, held < framesMax, f.push(&waiting[k], v))
			if held < framesMax {
				held++
				want[k] = append(want[k], v)
			}
		case 3:
			f.release(&waiting[k], MAC{2})
			ready = append(ready, want[k]...)
			want[k] = nil
		case 4:
			if r.IntN(2) == 0 {
				f.drop(&waiting[k])
				dropped = append(dropped, want[k]...)
				want[k] = nil
			} else if len(want[k]) > 0 {
				f.displace(&waiting[k])
				dropped = append(dropped, want[k][0])
				want[k] = want[k][1:]
			}
		case 5:
			for _, l := range []struct {
				list *frameList
				want *[]*int
			}{{&f.ready, &ready}, {&f.dropped, &dropped}} {
				v, _, ok := f.take(l.list)
				require.Equal(t, len(*l.want) > 0, ok)
				if ok {
					require.Same(t, (*l.want)[0], v)
					*l.want = (*l.want)[1:]
					held--
				}
			}
		}
		require.Equal(t, held, f.held)
		require.Equal(t, framesMax-held, int(f.free.count))
		for k := range waiting {
			require.Equal(t, len(want[k]), int(waiting[k].count))
		}
	}
}

// A frame that was taken is not kept alive.
func TestFrameStoreForgets(t *testing.T) {
	var f frameStore[*int]
	f.init(2)
	var l frameList
	require.True(t, f.push(&l, new(int)))
	f.drop(&l)
	_, _, ok := f.take(&f.dropped)
	require.True(t, ok)
	for _, node := range f.nodes {
		require.Nil(t, node.frame)
	}
}
