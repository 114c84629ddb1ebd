package stream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/tcp"
)

func heapArena(bufs int) *hugepages.Arena { return hugepages.Heap(bufs*stride + 4096) }

func TestTransferOverABadNetwork(t *testing.T) {
	for name, f := range map[string]fault.Faults{
		"loss":    {Drop: 0.01},
		"reorder": {Reorder: 0.1, ReorderBy: 5},
		"all":     {Drop: 0.005, Duplicate: 0.02, Reorder: 0.05, Corrupt: 0.002, Truncate: 0.002, Delay: 100_000, Jitter: 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, labConfig{
				faults: &fault.Spec{Seed: 11, Tx: f},
				tcp:    tcp.Config{RTOMinNs: int64(5 * time.Millisecond), DelayedAckNs: int64(time.Millisecond)},
			})
			a, b := l.pair(Options{}, Options{ReceiveWindowMax: 300_000})
			exchange(t, a, b, 3<<20)
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		})
	}
}
