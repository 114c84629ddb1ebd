package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryReasonHasItsName(t *testing.T) {
	var n Counters
	seen := map[string]bool{}
	n.Each(func(layer, reason string, v uint64) {
		require.NotEmpty(t, reason)
		require.NotContains(t, reason, "unknown")
		require.False(t, seen[layer+" "+reason], "%s %s", layer, reason)
		seen[layer+" "+reason] = true
	})
	require.Len(t, seen, len(n.Inet)-1+len(n.TCP)-1+len(n.Own))
	require.Equal(t, "unknown", DropMax.String())
}
