package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Config of a World of two hosts.
type Config struct {
	Seed   uint64
	MTU    int // default 1500
	V6     bool
	Faults fault.Faults // of each direction of the cable
	// of the middlebox in each direction: fault.PathSpec; Join in recorded workloads
	Coalesce float64 `json:"Join"`
	Split    float64
	TCP      tcp.Config
	Bufs     int // per host, default 1024
	// what each host's device takes, and when: its Rate, FrameRate, PerCall, Stall and StallFor
	Devices  [2]fault.Faults
	ZeroCopy bool `json:",omitempty"` // of the cable: wire.Config
	// the hosts' devices complete and verify checksums, so that segments come and go in runs
	Offload bool `json:",omitempty"`

	// Clock is nanoseconds, for applications of several goroutines; nil: Step moves the World's own.
	// With a Clock, one goroutine calls Turn, again and again, and calls of the Adapters wait for it.
	Clock func() int64 `json:"-"`
	// OnTurn is stack.Config.OnTurn of each host.
	OnTurn [2]func() int `json:"-"`
	// Loopback gives each host two more Pollers with a cable of their own between them: Host.Loop.
	Loopback bool `json:"-"`
}

// stepNs is what one turn of both hosts costs when there was work.
const stepNs = 1000

// regionsMax of a host: what the peers of a Workload register, control regions included, and some.
const regionsMax = 128

// World is two hosts and a cable.
type World struct {
	Hosts [2]*Host
	clock func() int64 // Config.Clock
	now   int64
	steps uint64
	cut   bool  // Cut was called
	wake  int64 // when an application wants to be asked again; 0: it does not
}

// Host is one end.
type Host struct {
	Adapter *rnic.Adapter
	Poller  *stack.Poller
	Pool    *mem.Pool
	Arena   *hugepages.Arena
	Addr    netip.Addr
	Loop    []*stack.Poller // with Config.Loopback
	path    *fault.Path     // what it sends: sizes; what it receives: boundaries
	faulty  *fault.Queue    // what it receives, and how slow its device is
	device  fault.Faults
	tap     *tap
	wounds  wounds
}

// neighbourRetries is how often a host asks for its neighbour. After MAX_MULTICAST_SOLICIT (3) a
// dial ends, as it must: "If no Neighbor Advertisement is received after MAX_MULTICAST_SOLICIT
// solicitations, address resolution has failed" (RFC 4861 section 7.2.2). Of a million Workloads a
// few lose three in a row, which would show nothing.
const neighbourRetries = 10

// New makes a World at time 0.
func New(cfg Config) (*World, error) {
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	if cfg.Bufs == 0 {
		cfg.Bufs = 1024
	}
	link, err := wire.New(wire.Config{MTU: cfg.MTU, Slots: 256, ZeroCopy: cfg.ZeroCopy})
	if err != nil {
		return nil, err
	}
	pools, err := newPools(cfg)
	if err != nil {
		return nil, err
	}
	w := &World{now: int64(time.Second), clock: cfg.Clock}
	for i := range w.Hosts {
		if w.Hosts[i], err = w.newHost(i, cfg, link.Port(i), pools[i]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// conns is how many connections a host may have.
func (c *Config) conns() int {
	if c.Clock != nil {
		return 64
	}
	return 16
}

// newPools are the packet buffers of both hosts.
func newPools(cfg Config) (pools [2]*mem.Pool, err error) {
	bufs := mem.PoolConfig{Bufs: cfg.Bufs, Stride: (mem.Headroom + cfg.MTU + 64 + 63) &^ 63}
	if cfg.ZeroCopy {
		return mem.NewPair(hugepages.Heap(2*bufs.Bytes()), bufs)
	}
	for i := range pools {
		if pools[i], err = mem.NewPool(hugepages.Heap(bufs.Bytes()), bufs); err != nil {
			return pools, err
		}
	}
	return pools, nil
}

func (w *World) newHost(i int, cfg Config, port *wire.Port, pool *mem.Pool) (*Host, error) {
	h := &Host{Arena: hugepages.Heap(1 << 20), Pool: pool, device: cfg.Devices[i]}
	prefix := netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", i+1))
	if cfg.V6 {
		prefix = netip.MustParsePrefix(fmt.Sprintf("fd09::%d/64", i+1))
	}
	h.Addr = prefix.Addr()
	var err error
	if err = h.openCable(i, cfg, port, w.Now); err != nil {
		return nil, err
	}
	caps := port.Caps()
	caps.RxChecksum, caps.TxChecksum = cfg.Offload, cfg.Offload
	h.Poller, err = stack.New(stack.Config{
		Name: h.Addr.String(), Queue: h.tap, Pool: h.Pool, Caps: caps, MAC: inet.MAC(port.MAC()),
		Neighbours: inet.NeighbourConfig{RetriesMax: neighbourRetries}, ConnsMax: cfg.conns(),
		Addr: prefix, NoDAD: true, NoAnnounce: true, MTU: cfg.MTU, TCP: cfg.TCP,
		Core: -1, Clock: w.Now, OnTurn: cfg.OnTurn[i],
		Secret: [16]byte{1, byte(i), byte(cfg.Seed), byte(cfg.Seed >> 8), byte(cfg.Seed >> 16),
			byte(cfg.Seed >> 24)},
	})
	if err != nil {
		return nil, err
	}
	if cfg.Loopback {
		if err = h.openLoop(i, w.Now); err != nil {
			return nil, err
		}
	}
	open := rnic.Config{
		Pollers: append([]*stack.Poller{h.Poller}, h.Loop...), RegionsMax: regionsMax,
		Manual: w.settle, DrawSTag: rand.New(rand.NewPCG(cfg.Seed, uint64(i))).Uint32,
	}
	if cfg.Clock != nil {
		open.Manual = nil
	}
	h.Adapter, err = rnic.Open(open)
	return h, err
}

// openLoop makes the Pollers of Host.Loop.
func (h *Host) openLoop(i int, clock func() int64) error {
	link, err := wire.New(wire.Config{MTU: 1500, Slots: 64})
	if err != nil {
		return err
	}
	pools, err := newPools(Config{MTU: 1500, Bufs: 256})
	if err != nil {
		return err
	}
	for k, pool := range pools {
		port := link.Port(k)
		queue, err := port.Open(0, pool)
		if err != nil {
			return err
		}
		prefix := netip.MustParsePrefix(fmt.Sprintf("10.8.%d.%d/24", i+1, k+1))
		p, err := stack.New(stack.Config{Name: prefix.Addr().String(), Queue: queue, Pool: pool,
			Caps: port.Caps(), MAC: inet.MAC(port.MAC()), Addr: prefix, NoDAD: true, NoAnnounce: true,
			MTU: 1500, ConnsMax: 64, Core: -1, Clock: clock})
		if err != nil {
			return err
		}
		h.Loop = append(h.Loop, p)
	}
	return nil
}

// openCable puts what stands in the cable in front of the host, whose receive side is one direction
// of it:
//
//	host <- tap <- faults <- path <- cable
func (h *Host) openCable(i int, cfg Config, port *wire.Port, clock func() int64) error {
	queue, err := port.Open(0, h.Pool)
	if err != nil {
		return err
	}
	seed := cfg.Seed*2 + uint64(i)
	h.path, err = fault.WrapPath(queue, h.Pool,
		fault.PathSpec{Seed: seed, LinkMTU: cfg.MTU, Coalesce: cfg.Coalesce, Split: cfg.Split})
	if err != nil {
		return err
	}
	if h.faulty, err = fault.Wrap(h.path, h.Pool, fault.Spec{Seed: seed, HeldMax: 512, Rx: cfg.Faults,
		Tx: h.device}, clock); err != nil {
		return err
	}
	h.wounds.streams = map[ports]*hurtStream{}
	h.faulty.Watch(h.wounds.watch)
	h.tap = &tap{inner: h.faulty, pool: h.Pool, mac: inet.MAC(port.MAC()), offload: cfg.Offload,
		legs: map[ports]*leg{}}
	return nil
}

// WakeAt makes the clock stop at a time to come, for an application that waits for it.
func (w *World) WakeAt(at int64) { w.wake = max(w.wake, at) }

// SetFaults changes the faults of both directions of the cable from now on.
func (w *World) SetFaults(f fault.Faults) error {
	for _, h := range w.Hosts {
		if err := h.faulty.Set(f, h.device); err != nil {
			return err
		}
	}
	return nil
}

// Cut cuts the cable: from now on nothing arrives. SetFaults mends it.
func (w *World) Cut() error {
	w.cut = true
	return w.SetFaults(fault.Faults{Drop: 1})
}

// SetPath changes what the path from host i carries; silent: without reports to a sender of more. 0
// is the link's MTU.
func (w *World) SetPath(i, mtu int, silent bool) error {
	p := w.Hosts[i].path
	spec := p.Spec()
	spec.MTU, spec.Silent = mtu, silent
	return p.Set(spec)
}

// Now is the virtual time, nanoseconds.
func (w *World) Now() int64 {
	if w.clock != nil {
		return w.clock()
	}
	return w.now
}

// Step turns both hosts once; when neither had anything to do, the clock goes to the next deadline.
func (w *World) Step() { w.now = w.Turn() }

// Turn turns both hosts once, and says when to turn them again.
func (w *World) Turn() (next int64) {
	w.steps++
	work, now := 0, w.Now()
	for _, h := range w.Hosts {
		work += h.Poller.Turn()
		for _, p := range h.Loop {
			work += p.Turn()
		}
	}
	if work > 0 {
		return now + stepNs
	}
	next = now + int64(time.Hour)
	if w.wake > now {
		next = min(next, w.wake)
	}
	for _, h := range w.Hosts {
		next = min(next, h.Poller.Deadline(), h.faulty.Deadline())
		for _, p := range h.Loop {
			next = min(next, p.Deadline())
		}
	}
	return max(next, now+stepNs)
}

// settle lets what an application ordered be carried out: each host drains its control ring in one
// turn.
func (w *World) settle() {
	for _, h := range w.Hosts {
		h.Poller.Turn()
	}
}

var errLimit = errors.New("sim: not done")

// Run steps until done says so. It fails after limit of virtual time.
func (w *World) Run(limit time.Duration, done func() bool) error {
	end := w.now + int64(limit)
	for !done() {
		if w.now > end {
			return fmt.Errorf("%w after %v of virtual time and %d steps", errLimit, limit, w.steps)
		}
		w.Step()
	}
	return nil
}

// spareBufs is what an idle Poller keeps at hand for the next segment.
const spareBufs = 1

// Leaked is how many of a host's Bufs are somewhere, once all its connections are closed and the
// cable is empty.
func (h *Host) Leaked() int { return max(0, h.Pool.Share()-h.Pool.Available()-spareBufs) }
