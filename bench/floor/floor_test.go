package floor

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// onOneProcessor, in short runs: two sides that spin on processors that other tests use, too, wait
// for the kernel's tick at each handover, minutes in all.
func onOneProcessor(t *testing.T) {
	if testing.Short() {
		n := runtime.GOMAXPROCS(1)
		t.Cleanup(func() { runtime.GOMAXPROCS(n) })
	}
}

func TestWhatArrivesIsWhatWasSent(t *testing.T) {
	onOneProcessor(t)
	for _, copies := range []int{2, 4} {
		var cfgs []Config
		for _, c := range ways(1460, copies) {
			small, large := c, c
			small.Payload, small.Slots, small.Burst, small.Own = 100, 1, 1, 1
			large.Payload, large.Slots, large.Burst, large.Own = 8960, 16, 4, 64
			large.Oldest = true
			cfgs = append(cfgs, c, small, large)
		}
		for _, cfg := range cfgs {
			f, err := New(cfg)
			require.NoError(t, err)
			f.yields = testing.Short()
			require.NotEqual(t, f.left.memory, f.right.memory)
			require.NoError(t, f.Check(), "%+v", cfg)
		}
	}
}

// A damaged buffer is found by its CRC.
func TestDamageIsSeen(t *testing.T) {
	onOneProcessor(t)
	for _, copies := range []int{2, 4} {
		for _, cfg := range ways(1024, copies) { // the source is a whole number of these
			f, err := New(cfg)
			require.NoError(t, err)
			f.yields = testing.Short()
			*f.ring.Reserve(0) = slot{f.free.take(true), 1024, ^uint32(0)}
			f.ring.Publish(1)
			require.ErrorContains(t, f.Check(), "CRC", "%+v", cfg)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	for _, cfg := range []Config{
		{1460, 3, 64, 16, 1, false, Ways{}}, {0, 2, 64, 16, 1, false, Ways{}},
		{1460, 2, 63, 16, 1, false, Ways{}}, {1460, 2, 64, 33, 1, false, Ways{}},
		{1460, 2, 8, 16, 1, false, Ways{}}, {1460, 4, 64, 16, 0, false, Ways{}},
		{1460, 4, 64, 16, 3, false, Ways{}}, {1460, 2, 64, 16, 1, false, Ways{Recv: First}},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, "want 2 or 4 copies")
	}
}
