package port

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// PollerLabel is the key of the profiler's label on the goroutine of each Poller, by which it is
// found among all others: its value is the device's name, a # and the number of the queue.
const PollerLabel = "rnicd_poller"

// LabelOf is the value of PollerLabel on the Poller of a queue.
func LabelOf(device string, queue int) string { return device + "#" + strconv.Itoa(queue) }

// Port is an open device with its memory and a Poller for each queue; or, over the kernel's
// sockets, only its memory. Open, Start and Close are for one goroutine, the rest for any.
type Port struct {
	cfg    Config
	claims Claims
	arena  *hugepages.Arena // nil: there is no memory
	// where packet buffers lie: arena, or one that is shared with another process
	packets *hugepages.Arena
	device  pmd.Port // as opened; nil: the kernel's sockets
	port    pmd.Port // with what Config puts in front of it
	point   *capture.Point
	capture *capture.Capture // of Config.Capture
	spoilt  atomic.Bool      // the Reporter was told that its file is incomplete
	pollers []*stack.Poller  // one for each queue
	region  []byte
	cancel  context.CancelFunc // nil until Start
	stopped chan struct{}      // closed when the Pollers have ended; runErr is settled then
	runErr  error
	watch   sync.WaitGroup
}

// Open maps memory for packets and for Config.Region, opens the device and makes its Pollers, which
// do not turn before Start. The caller has checked the Config.
func Open(cfg Config) (*Port, error) {
	p := &Port{cfg: cfg}
	if cfg.Driver.Sockets {
		return p, p.openKernel()
	}
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("our stack needs an address, as 10.9.0.1/24")
	}
	if cfg.Driver.Check != nil {
		if err := cfg.Driver.Check(&cfg); err != nil {
			return nil, err
		}
	}
	var err error
	if p.claims, err = Claim(&cfg); err != nil {
		return nil, err
	}
	if err := p.openDevice(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openDevice maps memory and opens the device. After an error the caller closes the Port.
func (p *Port) openDevice() (err error) {
	cfg := &p.cfg
	stride := cfg.stride(mem.Headroom)
	if cfg.Region < 0 || cfg.Region > memoryOctetsMax-cfg.packetBytes() {
		return &RegionError{cfg.Region}
	}
	node := cfg.Node
	if node == hugepages.AnyNode && cfg.Driver.Node != nil {
		node = cfg.Driver.Node(cfg)
	}
	sizes := cfg.Arenas()
	p.arena, err = hugepages.New(hugepages.Config{Bytes: sizes[0], Page: cfg.Page,
		Node: hugepages.OnNode(node)})
	if err != nil {
		return err
	}
	p.packets = p.arena
	if len(sizes) > 1 {
		// The other process must not see registered memory.
		p.packets, err = hugepages.New(hugepages.Config{Bytes: sizes[1], Page: cfg.Page,
			Node: hugepages.OnNode(node), Memfd: true})
		if err != nil {
			return err
		}
	}
	if err := p.open(stride); err != nil {
		return err
	}
	p.region, err = p.arena.Carve(int(cfg.Region), regionAlign)
	return err
}

// PairPools are the packet buffers of two Ports of one Config that hand Bufs to each other instead
// of copying frames. The arena must outlive both.
func PairPools(c *Config) (*hugepages.Arena, [2]*mem.Pool, error) {
	stride := c.stride(mem.Headroom)
	arena, err := hugepages.New(hugepages.Config{Bytes: int64(2*poolBufs*stride) + arenaExtra,
		Page: c.Page, Node: hugepages.OnNode(c.Node)})
	if err != nil {
		return nil, [2]*mem.Pool{}, err
	}
	pools, err := mem.NewPair(arena, mem.PoolConfig{Bufs: poolBufs, Stride: stride})
	if err != nil {
		return nil, pools, errors.Join(err, arena.Close())
	}
	return arena, pools, nil
}

// RegionError: so much memory cannot be addressed.
type RegionError struct{ Octets int64 }

func (e *RegionError) Error() string {
	return fmt.Sprintf("%d octets are more than can be addressed", e.Octets)
}

func (p *Port) openKernel() (err error) {
	if p.cfg.Region > 0 {
		if p.arena, err = hugepages.New(hugepages.Config{Bytes: p.cfg.Region, Page: p.cfg.Page,
			Node: hugepages.OnNode(p.cfg.Node)}); err != nil {
			return err
		}
		p.packets, p.region = p.arena, p.arena.Bytes()[:p.cfg.Region]
	}
	return nil
}

func (p *Port) open(stride int) error {
	device, err := p.cfg.Driver.Open(&p.cfg, p.packets)
	if err != nil {
		return err
	}
	p.device, p.port = device, device
	if err := p.wrap(); err != nil {
		return err
	}
	n := p.cfg.QueueCount()
	var group *stack.Group
	if n > 1 {
		if group, err = stack.NewGroup(n); err != nil {
			return err
		}
	}
	// All queues first: how the port spreads over them is known then.
	queues, pools := make([]pmd.Queue, n), make([]*mem.Pool, n)
	for i := range queues {
		if pools[i] = p.cfg.Pool; p.cfg.Pool == nil { // with a Pool there is one queue
			if pools[i], err = mem.NewPool(p.packets,
				mem.PoolConfig{Bufs: poolBufs, Stride: stride}); err != nil {
				return err
			}
		}
		if queues[i], err = p.port.Open(i, pools[i]); err != nil {
			return err
		}
	}
	for i := range queues {
		cfg := p.cfg.Stack(i)
		cfg.Name, cfg.Queue, cfg.Pool, cfg.Caps, cfg.MAC = p.port.Name(), queues[i], pools[i],
			p.port.Caps(), inet.MAC(p.port.MAC())
		cfg.Group, cfg.Member = group, i
		poller, err := stack.New(cfg)
		if err != nil {
			return err
		}
		p.pollers = append(p.pollers, poller)
	}
	return nil
}

// wrap puts what Config asks for in front of the device: faults, then the Point of captures,
// which so see what the stack sees.
func (p *Port) wrap() error {
	if p.cfg.Fault != nil {
		begin := time.Now()
		bad, err := fault.NewPort(p.port, *p.cfg.Fault, func() int64 { return int64(time.Since(begin)) })
		if err != nil {
			return &FrontError{"fault", err}
		}
		p.port = bad
	}
	p.point = capture.NewPoint(p.port)
	p.port = p.point
	if p.cfg.Capture != "" {
		var err error
		if p.capture, err = capture.Create(p.cfg.Capture,
			capture.Config{Direct: p.cfg.CaptureDirect}); err != nil {
			return &FrontError{"capture", err}
		}
		if err := p.capture.Attach(p.point); err != nil {
			return &FrontError{"capture", err}
		}
	}
	return nil
}

// Start runs the Pollers until Close; it returns when all turn, or says why they do not.
func (p *Port) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.stopped = make(chan struct{})
	ends := make([]error, len(p.pollers))
	var running, turning sync.WaitGroup
	for i, poller := range p.pollers {
		running.Go(func() {
			pprof.Do(ctx, pprof.Labels(PollerLabel, LabelOf(poller.Name(), i)), func(ctx context.Context) {
				ends[i] = poller.Run(ctx)
			})
			if ends[i] != nil {
				cancel() // all or none
			}
		})
		turning.Add(1)
		if err := poller.Submit(turning.Done); err != nil {
			turning.Done()
		}
	}
	go func() {
		running.Wait()
		p.runErr = errors.Join(ends...)
		close(p.stopped)
	}()
	all := make(chan struct{})
	go func() {
		turning.Wait()
		close(all)
	}()
	if len(p.pollers) == 0 {
		return nil
	}
	select {
	case <-all:
		return nil
	case <-p.stopped:
		err := p.runErr
		p.runErr = nil // told here; Close need not tell it again
		return err
	}
}

// Close stops the Pollers and gives everything back. Adapters over them have been closed. That
// the file of a capture is incomplete is no error where the Reporter of Watch was told.
func (p *Port) Close() error {
	var err error
	if p.cancel != nil {
		p.cancel()
		<-p.stopped
		err = p.runErr
	}
	p.watch.Wait()
	if p.port != nil {
		err = errors.Join(err, p.port.Close())
	}
	if p.capture != nil {
		if spoilt := p.capture.Close(); !p.spoilt.Load() {
			err = errors.Join(err, spoilt)
		}
	}
	if p.packets != nil && p.packets != p.arena {
		err = errors.Join(err, p.packets.Close())
	}
	if p.arena != nil {
		err = errors.Join(err, p.arena.Close())
	}
	p.claims.Release()
	return err
}

// Adapter makes an rnic.Adapter on the Port.
func (p *Port) Adapter() (*rnic.Adapter, error) { return p.AdapterWith(rnic.Config{}) }

// AdapterWith is Adapter with limits of the caller's, as far as the Port has none.
func (p *Port) AdapterWith(cfg rnic.Config) (*rnic.Adapter, error) {
	cfg.Fell = p.cfg.Fell
	if p.cfg.Driver.Sockets {
		cfg.PeerMax, cfg.ConnsMax = p.cfg.PeerMax, cmp.Or(cfg.ConnsMax, p.cfg.ConnsMax)
		cfg.OnTurn, cfg.Bell = p.cfg.OnTurn, p.cfg.Bell
		return rnic.Open(cfg)
	}
	cfg.Pollers = p.pollers
	if !raceEnabled {
		cfg.Arena = p.arena
	}
	return rnic.Open(cfg)
}

// Pollers are those of the queues, in order; none over the kernel's sockets.
func (p *Port) Pollers() []*stack.Poller { return p.pollers }

// Region is the memory that Config.Region asked for. It is gone after Close.
func (p *Port) Region() []byte { return p.region }

// Arena is where Region lies; nil when there is no memory.
func (p *Port) Arena() *hugepages.Arena { return p.arena }

// Arenas are all memory of the Port: where Region lies and, where another process shares packet
// buffers, theirs.
func (p *Port) Arenas() (all []*hugepages.Arena) {
	if p.arena != nil {
		all = append(all, p.arena)
	}
	if p.packets != nil && p.packets != p.arena {
		all = append(all, p.packets)
	}
	return all
}

// Point is where the port can be captured; nil over the kernel's sockets.
func (p *Port) Point() *capture.Point { return p.point }

// Capture is that of Config.Capture, or nil.
func (p *Port) Capture() *capture.Capture { return p.capture }

// Device is the open device without what Config put in front of it; nil over the kernel's sockets.
func (p *Port) Device() pmd.Port { return p.device }

// Name is the device's, as its driver has it.
func (p *Port) Name() string {
	if p.port == nil {
		return p.cfg.Driver.Name
	}
	return p.port.Name()
}

// Config is what the Port was made of.
func (p *Port) Config() *Config { return &p.cfg }

// Host is the address to listen on over the kernel's sockets, empty for all; and empty over our
// Pollers, which have their own.
func (p *Port) Host() string {
	if !p.cfg.HostAt.IsValid() {
		return ""
	}
	return p.cfg.HostAt.String()
}

// KernelCapture says why there is no capture over the kernel's sockets, and what makes one.
func KernelCapture(file string) string {
	return fmt.Sprintf("the kernel sends these frames, and only it can write them; as root: "+
		"tcpdump -i any -U -w '%s' tcp", file)
}

// FrontError is of what Config puts in front of the device: a fault, or a capture.
type FrontError struct {
	What string
	Err  error
}

func (e *FrontError) Error() string { return e.What + ": " + e.Err.Error() }
func (e *FrontError) Unwrap() error { return e.Err }
