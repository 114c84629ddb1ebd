package mem

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// A Reader's Enter may still be on its way to memory, after stores that miss the cache, when its
// Check has found the entry. Revoke waits for it all the same.
func TestRevokeSeesEnterAfterSlowStores(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		skip.Missing(t, "wants two cores")
	}
	t.Run("the kernel's barrier", func(t *testing.T) { revokeAfterSlowStores(t, NewTable(1)) })
	t.Run("a stop of the world", func(t *testing.T) {
		table := NewTable(1)
		if table.fence != nil {
			table.fence = stopTheWorld
		}
		revokeAfterSlowStores(t, table)
	})
	t.Run("the Reader's own", func(t *testing.T) {
		table := NewTable(1)
		table.fence = nil
		revokeAfterSlowStores(t, table)
	})
}

func revokeAfterSlowStores(t *testing.T, table *Table) {
	m := register(t, table, 1, make([]byte, 64), RegionOptions{Access: RemoteWrite})
	var current, gone atomic.Uint64 // STag to check; STag for which Revoke has returned
	var stop atomic.Bool
	var late, found atomic.Uint64
	current.Store(uint64(m.STag()))
	var wg sync.WaitGroup
	wg.Go(func() {
		r := table.NewReader()
		defer r.Close()
		const lines = 1 << 20
		cold := make([]byte, 64*lines)
		for at := 0; !stop.Load(); {
			stag := current.Load()
			for range 40 { // what a store buffer holds
				at = (at + 7919) % lines
				cold[64*at] = byte(at)
			}
			r.Enter()
			if _, res := table.Check(1, 1, STag(stag), 0, 64, RemoteWrite); res == CheckOK {
				for range 16 {
					if gone.Load() == stag {
						late.Add(1)
					}
				}
				found.Add(1) // a barrier
			}
			r.Exit()
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	begin, least := time.Now(), time.Duration(sample.Count(100, 3000))*time.Millisecond
	for time.Since(begin) < least || found.Load() == 0 {
		require.Less(t, time.Since(begin), time.Minute, "no Check came to the region")
		stag := current.Load()
		for range 500 { // meanwhile the other is somewhere
			stop.Load()
		}
		m.Revoke()
		gone.Store(stag)
		current.Store(uint64(m.Revalidate()))
	}
	stop.Store(true)
	wg.Wait()
	require.Zero(t, late.Load(), "Checks of %d that Revoke has not waited for", found.Load())
}
