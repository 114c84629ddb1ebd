// Package sim runs whole hosts in virtual time from one seed: Poller, TCP, MPA, DDP, RDMAP and verbs are the real ones,
// and only the cable, its faults and the clock are made up. A run that failed is the same run again with the same seed.
//
// Everything happens on the goroutine that steps the World. Its oracle (workload.go) is that memory is byte-equal,
// completions come once and in order, nothing leaks and nothing is written outside a region.
package sim

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Config of a World of two hosts.
type Config struct {
	Seed   uint64
	MTU    int          // default 1500
	Faults fault.Faults // of each direction of the cable
	TCP    tcp.Config
	Bufs   int // per host, default 2048
}

// stepNs is what one turn of both hosts costs when there was work.
const stepNs = 1000

// World is two hosts and a cable.
type World struct {
	Hosts [2]*Host
	now   int64
	steps uint64
}

// Host is one end.
type Host struct {
	Adapter *rnic.Adapter
	Poller  *stack.Poller
	Pool    *mem.Pool
	Arena   *hugepages.Arena
	Addr    string
	faulty  *fault.Queue
}

// New makes a World at time 0.
func New(cfg Config) (*World, error) {
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	if cfg.Bufs == 0 {
		cfg.Bufs = 2048
	}
	link, err := wire.New(wire.Config{MTU: cfg.MTU})
	if err != nil {
		return nil, err
	}
	w := &World{now: int64(time.Second)}
	for i := range w.Hosts {
		if w.Hosts[i], err = w.newHost(i, cfg, link.Port(i)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *World) newHost(i int, cfg Config, port *wire.Port) (*Host, error) {
	stride := (mem.Headroom + cfg.MTU + 64 + 63) &^ 63
	h := &Host{Arena: hugepages.Heap(cfg.Bufs*stride + 1<<20), Addr: fmt.Sprintf("10.9.0.%d", i+1)}
	var err error
	if h.Pool, err = mem.NewPool(h.Arena, mem.PoolConfig{Bufs: cfg.Bufs, Stride: stride}); err != nil {
		return nil, err
	}
	// Each host's receive side is one direction of the cable.
	faulty, err := fault.NewPort(port, fault.Spec{Seed: cfg.Seed*2 + uint64(i), Rx: cfg.Faults}, w.Now)
	if err != nil {
		return nil, err
	}
	queue, err := faulty.Open(0, h.Pool)
	if err != nil {
		return nil, err
	}
	h.faulty = queue.(*fault.Queue)
	h.Poller, err = stack.New(stack.Config{
		Name: h.Addr, Queue: queue, Pool: h.Pool, Caps: faulty.Caps(), MAC: inet.MAC(faulty.MAC()),
		Addr: netip.MustParsePrefix(h.Addr + "/24"), MTU: cfg.MTU, TCP: cfg.TCP, ConnsMax: 16, Core: -1, Clock: w.Now,
		Secret: [16]byte{1, byte(i), byte(cfg.Seed), byte(cfg.Seed >> 8), byte(cfg.Seed >> 16), byte(cfg.Seed >> 24)},
	})
	if err != nil {
		return nil, err
	}
	h.Adapter, err = rnic.Open(rnic.Config{Pollers: []*stack.Poller{h.Poller}, Manual: w.settle})
	return h, err
}

// Now is the virtual time, nanoseconds.
func (w *World) Now() int64 { return w.now }

// Step turns both hosts once; when neither had anything to do, the clock goes to the next deadline.
func (w *World) Step() {
	w.steps++
	work := 0
	for _, h := range w.Hosts {
		work += h.Poller.Turn()
	}
	if work > 0 {
		w.now += stepNs
		return
	}
	next := int64(math.MaxInt64)
	for _, h := range w.Hosts {
		next = min(next, h.Poller.Deadline(), h.faulty.Deadline())
	}
	w.now = max(w.now+stepNs, min(next, w.now+int64(time.Hour)))
}

// settle lets what an application ordered be carried out: each host drains its control ring in one turn.
func (w *World) settle() {
	for _, h := range w.Hosts {
		h.Poller.Turn()
	}
}

// Run steps until done says so. It fails after limit of virtual time.
func (w *World) Run(limit time.Duration, done func() bool) error {
	end := w.now + int64(limit)
	for !done() {
		if w.now > end {
			return fmt.Errorf("sim: not done after %v of virtual time and %d steps", limit, w.steps)
		}
		w.Step()
	}
	return nil
}

// spareBufs is what an idle Poller keeps at hand for the next segment.
const spareBufs = 1

// Leaked is how many of a host's Bufs are somewhere, once all its connections are closed and the cable is empty.
func (h *Host) Leaked() int { return max(0, h.Pool.Size()-h.Pool.Available()-spareBufs) }
