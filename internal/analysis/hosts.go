package analysis

import (
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// hosts are two whole ones, back to back over a cable in memory, turned by hand in virtual time.
type hosts struct {
	pollers  [2]*stack.Poller
	adapters [2]*rnic.Adapter
	now      int64
}

const (
	hostMTU    = 1500
	hostBufs   = 2048
	turnNs     = 1000    // what a turn of both costs when there was work
	turnsMax   = 100_000 // of hosts that have come to nothing
	hostPrefix = "10.9.0.%d"
)

func newHosts() (*hosts, error) {
	cable, err := wire.New(wire.Config{MTU: hostMTU})
	if err != nil {
		return nil, err
	}
	h := &hosts{now: 1_000_000_000}
	for i := range h.pollers {
		pool, err := mem.NewPool(hugepages.Heap(hostBufs*stride+1<<20),
			mem.PoolConfig{Bufs: hostBufs, Stride: stride})
		if err != nil {
			return nil, err
		}
		port := cable.Port(i)
		queue, err := port.Open(0, pool)
		if err != nil {
			return nil, err
		}
		h.pollers[i], err = stack.New(stack.Config{
			Name: fmt.Sprint(i), Queue: queue, Pool: pool, Caps: port.Caps(), MAC: inet.MAC(port.MAC()),
			MTU:  hostMTU,
			Addr: netip.MustParsePrefix(hostAddr(i) + "/24"), ConnsMax: 16, Core: -1, Clock: func() int64 {
				return h.now
			},
			Secret: [16]byte{1, byte(i)}, NoDAD: true, NoAnnounce: true,
		})
		if err != nil {
			return nil, err
		}
		h.adapters[i], err = rnic.Open(rnic.Config{Pollers: h.pollers[i : i+1], Manual: func() {
			h.turn()
		}})
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

func hostAddr(i int) string { return fmt.Sprintf(hostPrefix, i+1) }

// turn turns both hosts once.
func (h *hosts) turn() (work int) {
	for _, p := range h.pollers {
		work += p.Turn()
	}
	return work
}

// until turns the hosts until done says so; when they have nothing to do the clock goes to their
// next deadline.
func (h *hosts) until(done func() bool) error {
	for range turnsMax {
		if done() {
			return nil
		}
		if h.turn() > 0 {
			h.now += turnNs
			continue
		}
		h.now = max(h.now+turnNs, min(h.pollers[0].Deadline(), h.pollers[1].Deadline(),
			h.now+1_000_000_000))
	}
	return fmt.Errorf("analysis: not done after %d turns", turnsMax)
}

// pass lets time go by, until nothing that was sent is under way or waits for its acknowledgment.
func (h *hosts) pass() error {
	end := h.now + 1_000_000_000
	return h.until(func() bool { return h.now >= end })
}
