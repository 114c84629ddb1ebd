package sample

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// short has the rest of the test run with -short, or without.
func short(t *testing.T, on string) {
	t.Helper()
	before := flag.Lookup("test.short").Value.String()
	require.NoError(t, flag.Set("test.short", on))
	t.Cleanup(func() { require.NoError(t, flag.Set("test.short", before)) })
}

func TestWhole(t *testing.T) {
	short(t, "false")
	require.Equal(t, 9, Count(2, 9))
	require.Equal(t, []int{1, 2, 3}, Of(t, 1, []int{1, 2, 3}))
	require.Len(t, Map(t, 1, map[int]int{1: 1, 2: 2}), 2)
}

// Each case comes in one draw or another, and those of one draw are different and in their order.
func TestShort(t *testing.T) {
	short(t, "true")
	require.Equal(t, 2, Count(2, 9))
	all := []int{1, 2, 3, 4, 5}
	require.Equal(t, all, Of(t, 6, all))
	require.Len(t, Map(t, 5, map[int]int{1: 1}), 1)
	seen, seenKeys := map[int]bool{}, map[int]bool{}
	for len(seen) < 5 || len(seenKeys) < 3 {
		drawn := Of(t, 2, all)
		require.Len(t, drawn, 2)
		require.True(t, slices.IsSorted(drawn) && drawn[0] != drawn[1], "%v", drawn)
		m := Map(t, 2, map[int]int{1: 10, 2: 20, 3: 30})
		require.Len(t, m, 2)
		for _, x := range drawn {
			seen[x] = true
		}
		for k, v := range m {
			require.Equal(t, 10*k, v)
			seenKeys[k] = true
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 5}, all, "the caller's")
}
