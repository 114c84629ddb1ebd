// Package testhost makes Pollers for tests and benchmarks of the packages above stack. They give a
// stack.Config with what is special to them; the rest is here.
package testhost

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/stack"
)

// PoolConfig is that of so many Bufs for frames of an MTU.
func PoolConfig(bufs, mtu int) mem.PoolConfig {
	return mem.PoolConfig{Bufs: bufs, Stride: (mem.Headroom + mtu + 64 + 63) &^ 63}
}

// NewPool makes a pool on the Go heap, where the race detector sees it.
func NewPool(t testing.TB, bufs, mtu int) *mem.Pool {
	t.Helper()
	cfg := PoolConfig(bufs, mtu)
	pool, err := mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg)
	require.NoError(t, err)
	return pool
}

// NewPoller makes a Poller on port with the Bufs of cfg.Pool, not pinned to a core. Capabilities
// and MAC are the port's; where cfg does not say them, so is the name, and the queue is the port's
// first, opened here. Addresses are used at once, unless cfg.QuickDAD.
func NewPoller(t testing.TB, port pmd.Port, cfg stack.Config) *stack.Poller {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = port.Name()
	}
	if cfg.Queue == nil {
		queue, err := port.Open(0, cfg.Pool)
		require.NoError(t, err)
		cfg.Queue = queue
	}
	cfg.Caps, cfg.MAC, cfg.Core, cfg.NoDAD = port.Caps(), inet.MAC(port.MAC()), -1, !cfg.QuickDAD
	p, err := stack.New(cfg)
	require.NoError(t, err)
	return p
}

// Run turns each of pollers on a goroutine of its own until the test ends.
func Run(t testing.TB, pollers ...*stack.Poller) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, p := range pollers {
		running.Go(func() { _ = p.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
