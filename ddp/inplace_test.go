package ddp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A message started in place is cut like one that is started from a Message, whatever message came
// before it.
func TestStartInPlace(t *testing.T) {
	var a, b Segmenter
	a.Init(1)
	b.Init(1)
	same := func() {
		t.Helper()
		for a.Active() {
			require.Equal(t, a.NextLen(128), b.NextLen(128))
			h, off, n := a.Next(128)
			g, off2, n2 := b.Next(128)
			require.Equal(t, *h, *g)
			require.Equal(t, []int{int(off), n}, []int{int(off2), n2})
		}
		require.False(t, b.Active())
	}
	for range 3 {
		a.Start(Message{Header: Header{QN: 2, ULP: 0x43, ULP32: 7}, Len: 300})
		b.StartUntagged(2, 0x43, 7, 300)
		require.Panics(t, func() { b.StartUntagged(2, 0, 0, 1) })
		require.Panics(t, func() { b.StartTagged(0, 1, 1, 1) })
		same()
		a.Start(Message{Header: Header{Tagged: true, ULP: 0x40, STag: 9, TO: 1 << 40}, Len: 300})
		b.StartTagged(0x40, 9, 1<<40, 300)
		same()
		a.Start(Message{Header: Header{QN: 0, ULP: 0x43}})
		b.StartUntagged(0, 0x43, 0, 0)
		same()
	}
	require.Panics(t, func() { b.StartUntagged(queuesMax, 0, 0, 1) })
}
