package conf

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A size is read back as it was written.
func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(
			rapid.Int64Range(0, 1<<62).Draw(t, "s") &^ (1<<rapid.IntRange(0, 45).Draw(t, "zeros") - 1))
		var back Size
		require.NoError(t, back.UnmarshalText([]byte(s.String())))
		require.Equal(t, s, back)
	})
	for _, bad := range []string{"", "-1", "KiB", "1.5", "9000000000GiB", "1e3KiB", "0x1K", "1 K",
		"NaNK", "InfG"} {
		require.Error(t, new(Size).UnmarshalText([]byte(bad)), bad)
	}
}
