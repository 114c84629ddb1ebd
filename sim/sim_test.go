package sim

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd/fault"
)

var seeds = flag.Int("seeds", 100, "how many seeds TestSeeds plays")

// badNetwork is the bad network of the project's promise: 1 % loss, 1 % reordering, 0.5 % duplication, and corruption, some
// of it invisible to the TCP checksum so that only CRC32C can find it.
var badNetwork = fault.Faults{
	Drop: 0.01, Reorder: 0.01, Duplicate: 0.005, Corrupt: 0.002, Swap: 0.002, Delay: 20_000, Jitter: 5_000,
}

// Whatever the network does, memory is byte-equal, completions come once and in order, nothing leaks.
//
// req: DDP-7.3-6, DDP-7.3-7, DDP-7.4-2
func TestSeeds(t *testing.T) {
	var ahead uint64
	for seed := range uint64(*seeds) {
		wl := Workload{
			Config:   Config{Seed: seed, Faults: badNetwork, MTU: []int{1500, 1500, 9000, 576}[seed%4]},
			Messages: 60, WriteMax: 64 << 10, SendMax: 8 << 10, DropBadCRC: true, NoMarkers: seed%5 == 4,
		}
		if wl.NoMarkers {
			// What comes ahead of a gap can then be verified only after TCP has acknowledged it, and a frame found bad
			// by its CRC alone must end the stream (DECISIONS 30).
			wl.Faults.Corrupt, wl.Faults.Swap = 0, 0
		}
		out, err := wl.Run()
		require.NoErrorf(t, err, "seed %d", seed)
		if !wl.NoMarkers {
			ahead += out.Stats[0].Receive.OutOfOrder + out.Stats[1].Receive.OutOfOrder
		}
	}
	require.Positive(t, ahead, "frames placed before an earlier gap was filled")
}

// The same seed is the same run.
func TestDeterminism(t *testing.T) {
	run := func() string {
		out, err := Workload{
			Config: Config{Seed: 7, Faults: badNetwork}, Messages: 40, WriteMax: 32 << 10, SendMax: 4096, DropBadCRC: true,
		}.Run()
		require.NoError(t, err)
		return fmt.Sprintf("%+v", out)
	}
	require.Equal(t, run(), run())
}
