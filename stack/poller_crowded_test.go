package stack

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Poller says that it shares its core when another thread ran in its last yield, and for a while
// after it was kept from a Turn; not because it has slept.
func TestCrowded(t *testing.T) {
	word := new(uint32)
	c := crowding{word: word}
	says := func(now int64, shared bool) bool {
		c.turned(now, shared)
		return atomic.LoadUint32(word) == crowdedYes
	}
	now := second
	require.False(t, says(now, false))
	require.True(t, says(now+1, true), "another thread ran")
	require.False(t, says(now+2, false))
	now += 2 + keptMinNs - 1
	require.False(t, says(now, false), "a long Turn")
	now += keptMinNs
	require.True(t, says(now, false), "kept from it")
	for range crowdedNs/(keptMinNs/2) - 1 {
		now += keptMinNs / 2
		require.True(t, says(now, false), "not long ago")
	}
	now += keptMinNs / 2
	require.False(t, says(now, false))
	c.gaveWay()
	now += second
	require.False(t, says(now, false), "it has slept")

	c = crowding{}
	c.turned(now, true) // nobody wants to know
}
