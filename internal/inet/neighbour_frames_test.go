package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
