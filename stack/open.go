package stack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// How much memory Open takes.
const (
	mtuDefault = 1500
	bufsMin    = 8192 // of each queue's pool: what a device's rings and some fast connections take
	bufsOfConn = 8    // or so many for each connection, if that is more
	// what DPDK's drivers want of a packet buffer, whatever the MTU (RTE_MBUF_DEFAULT_DATAROOM)
	roomMin = 2048
	// Ethernet header, two VLAN tags, and the octet that tells a cut frame from a full one
	frameExtra  = 64
	strideAlign = 64
	poolAlign   = 4096

	busyPause = time.Millisecond
)

// Host is a port with its memory and a running Poller for each queue. Close ends all of it.
type Host struct {
	Pollers []*Poller // in the order of the queues; for rnic.Config, stream.Dialer, stream.Listen

	port    pmd.Port
	arena   *hugepages.Arena // nil: the caller's
	cancel  context.CancelFunc
	running sync.WaitGroup
	ends    []error // of each Poller, once running is over
	once    sync.Once
	err     error // of Close
}

// Open runs a Poller on each queue of port, as cfg says, and returns when they turn. It makes their
// memory, as large as they need, and sets Config's Name, Queue, Pool, Caps, MAC, Group and Member.
// With a Core, the Poller of queue i is pinned to the i-th CPU after it. The port belongs to the
// Host, which closes it, and is closed if Open fails. A pmd.LinkWatcher's link is watched
// (Poller.LinkUp). Addresses may still be under duplicate address detection: Poller.AwaitAddrs.
//
// Devices that must know their packet memory (dpdk.Config.Arena, memif.Config.Arena) get an arena
// of Config.MemoryBytes octets before, which is Config.Arena here and stays the caller's.
//
// Any goroutine. It may take as long as hugepages.New.
func Open(port pmd.Port, cfg Config) (*Host, error) {
	if port == nil {
		return nil, errors.New("stack: open: no port; want one of pmd/tap, pmd/dpdk, pmd/memif, pmd/wire")
	}
	h := &Host{port: port, cancel: func() {}}
	if err := h.open(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("stack: open %s: %w", port.Name(), err), h.Close())
	}
	return h, nil
}

// MemoryBytes is how large an arena Open needs for so many queues: by MTU (default 1500) and
// ConnsMax.
func (cfg Config) MemoryBytes(queues int) int64 {
	return int64(queues) * (int64(cfg.poolConfig().Bytes()) + poolAlign)
}

// poolConfig is the pool of one queue.
func (cfg *Config) poolConfig() mem.PoolConfig {
	mtu, conns := cfg.MTU, cfg.ConnsMax
	setDefault(&mtu, mtuDefault)
	setDefault(&conns, connsMaxDefault)
	room := mem.Headroom + max(mtu+frameExtra, roomMin)
	return mem.PoolConfig{Bufs: max(bufsMin, bufsOfConn*conns),
		Stride: (room + strideAlign - 1) &^ (strideAlign - 1)}
}

// open opens the queues, makes their Pollers and runs them.
func (h *Host) open(cfg Config) (err error) {
	caps := h.port.Caps()
	setDefault(&cfg.MTU, caps.MTU)
	switch {
	case cfg.MTU < 0 || cfg.MTU > math.MaxUint16:
		return fmt.Errorf("MTU %d: want 1 to %d, or 0: the port's", cfg.MTU, math.MaxUint16)
	case cfg.ConnsMax < 0 || cfg.ConnsMax > connsMaxMax:
		return fmt.Errorf("ConnsMax %d: want 1 to %d, or 0: %d", cfg.ConnsMax, connsMaxMax,
			connsMaxDefault)
	}
	arena, n := cfg.Arena, max(caps.Queues, 1)
	if arena == nil {
		if arena, err = hugepages.New(hugepages.Config{Bytes: cfg.MemoryBytes(n)}); err != nil {
			return err
		}
		h.arena = arena
	}
	if n > 1 {
		if cfg.Group, err = NewGroup(n); err != nil {
			return err
		}
	}
	// all queues first: how the port spreads over them is known then
	queues, pools := make([]pmd.Queue, n), make([]*mem.Pool, n)
	for i := range n {
		if pools[i], err = mem.NewPool(arena, cfg.poolConfig()); err != nil {
			return err
		}
		if queues[i], err = h.port.Open(i, pools[i]); err != nil {
			return err
		}
	}
	cfg.Name, cfg.Caps, cfg.MAC = h.port.Name(), h.port.Caps(), inet.MAC(h.port.MAC())
	core := cfg.Core
	for i := range n {
		cfg.Queue, cfg.Pool, cfg.Member = queues[i], pools[i], i
		if cfg.Core = core; core == firstCPU {
			cfg.Core = OnCPU(i)
		} else if core > 0 {
			cfg.Core = core + i
		}
		p, err := New(cfg)
		if err != nil {
			return err
		}
		h.Pollers = append(h.Pollers, p)
	}
	return h.run()
}

// run starts all Pollers and waits until they turn, or one cannot.
func (h *Host) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel, h.ends = cancel, make([]error, len(h.Pollers))
	turning := make(chan struct{}, len(h.Pollers))
	for i, p := range h.Pollers {
		if err := p.Submit(func() { turning <- struct{}{} }); err != nil {
			return err
		}
		h.running.Go(func() {
			if h.ends[i] = p.Run(ctx); h.ends[i] != nil {
				cancel() // all or none
			}
		})
	}
	for range h.Pollers {
		select {
		case <-turning:
		case <-ctx.Done():
			h.running.Wait()
			return errors.Join(h.ends...)
		}
	}
	if w, can := h.port.(pmd.LinkWatcher); can {
		return w.WatchLink(h.linkUp)
	}
	return nil
}

// linkUp has all Pollers announce and check their addresses anew. The port's goroutine.
func (h *Host) linkUp() {
	for _, p := range h.Pollers {
		for errors.Is(p.LinkUp(), ErrBusy) {
			time.Sleep(busyPause)
		}
	}
}

// Close stops the Pollers, which resets their connections, closes the port and gives the memory
// back. Close the Adapters and Listeners on the Pollers before. Further calls return what the first
// did. Any goroutine but a Poller's.
func (h *Host) Close() error {
	h.once.Do(func() {
		h.cancel()
		h.running.Wait()
		h.err = h.port.Close()
		if h.arena != nil {
			h.err = errors.Join(h.err, h.arena.Close())
		}
	})
	return h.err
}
