package inet

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every reason has a name of its own that may stand as a metric label.
func TestDropNames(t *testing.T) {
	seen := map[string]bool{}
	for d := DropNone; d < DropMax; d++ {
		require.Regexp(t, regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), d.String())
		require.False(t, seen[d.String()], d.String())
		seen[d.String()] = true
	}
	require.Equal(t, "unknown", DropMax.String())
	require.Equal(t, "unknown", Drop(255).String())
}
