package floor

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
)

// run lets both sides work until one source has been moved, and some.
func run(t *testing.T, f *Floor) {
	t.Helper()
	s := yard.Until(sourceBytes)
	var sides sync.WaitGroup
	sides.Go(func() { f.Left(s) })
	sides.Go(func() { f.Right(s) })
	sides.Wait()
}

func TestWhatArrivesIsWhatWasSent(t *testing.T) {
	for _, copies := range []int{2, 4} {
		for _, cfg := range []Config{{1460, copies, 64, 16}, {8960, copies, 16, 4}, {100, copies, 1, 1}} {
			f, err := New(cfg)
			require.NoError(t, err)
			run(t, f)
			run(t, f)
			require.NoError(t, f.Check(), "%+v", cfg)
		}
	}
}

// A damaged buffer is found by its CRC, a lost octet at the end.
func TestDamageIsSeen(t *testing.T) {
	f, err := New(Config{1460, 2, 64, 16})
	require.NoError(t, err)
	require.ErrorContains(t, f.Check(), "0 octets")
	run(t, f)
	f.right.memory[77] ^= 1
	f.moved = sourceBytes
	require.ErrorContains(t, f.Check(), "not what was sent")
	f, err = New(Config{1460, 2, 64, 16})
	require.NoError(t, err)
	*f.ring.Reserve(0) = slot{0, 8, ^uint32(0)}
	f.ring.Publish(1)
	run(t, f)
	require.ErrorContains(t, f.Check(), "CRC")
}

func TestConfigRefused(t *testing.T) {
	for _, cfg := range []Config{{1460, 3, 64, 16}, {0, 2, 64, 16}, {1460, 2, 63, 16}, {1460, 2, 64, 33}, {1460, 2, 8, 16}} {
		_, err := New(cfg)
		require.ErrorContains(t, err, "want 2 or 4 copies")
	}
}
