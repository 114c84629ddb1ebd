package floor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatArrivesIsWhatWasSent(t *testing.T) {
	for _, copies := range []int{2, 4} {
		for _, cfg := range []Config{{1460, copies, 64, 16}, {8960, copies, 16, 4}, {100, copies, 1, 1}} {
			f, err := New(cfg)
			require.NoError(t, err)
			require.NotEqual(t, f.left.memory, f.right.memory)
			require.NoError(t, f.Check(), "%+v", cfg)
		}
	}
}

// A damaged buffer is found by its CRC.
func TestDamageIsSeen(t *testing.T) {
	f, err := New(Config{1460, 2, 64, 16})
	require.NoError(t, err)
	*f.ring.Reserve(0) = slot{0, 8, ^uint32(0)}
	f.ring.Publish(1)
	require.ErrorContains(t, f.Check(), "CRC")
}

func TestConfigRefused(t *testing.T) {
	for _, cfg := range []Config{{1460, 3, 64, 16}, {0, 2, 64, 16}, {1460, 2, 63, 16}, {1460, 2, 64, 33}, {1460, 2, 8, 16}} {
		_, err := New(cfg)
		require.ErrorContains(t, err, "want 2 or 4 copies")
	}
}
