package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/capture"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
	"github.com/rnicd/rnicd/tcp/cc"
)

// Sizes of a NIC's packet memory.
const (
	poolBufs    = 8192
	connsMax    = 256
	coreNone    = -1
	strideAlign = 64
	arenaExtra  = 8 << 20 // descriptors, queues' rings, alignment
	regionAlign = 4096
	queuesMax   = 64
	timerMin    = 10 * time.Microsecond // some turns of a Poller
	rtoMinMax   = time.Minute           // tcp.Config.RTOMaxNs
	ptoMinMax   = time.Second
	mtuMin      = 576  // what every IPv4 host takes (RFC 791 section 3.1); the stack's least
	vlanMax     = 4094 // IEEE 802.1Q: 4095 is reserved
	frameExtra  = 64   // Ethernet header, two VLAN tags, and the octet that tells a cut frame from a full one
	dpdkRoomMin = 2048 // RTE_MBUF_DEFAULT_DATAROOM: what drivers, net_af_packet among them, want whatever the MTU
)

// nicOptions are the flags that describe a NIC and its Poller.
type nicOptions struct {
	pmd      string
	dev      string
	pci      string
	eal      string
	addrs    []string
	hostAddr string
	gateways []string
	vlan     uint16
	peerMax  uint16 // of servers
	mtu      int
	core     int
	cores    string
	queues   int
	spin     bool
	idle     string
	page     string
	node     int
	fault    string
	capture  string
	counters bool

	flowControl string
	promiscuous bool

	memif memifOptions

	zeroCopy bool      // of a demo's cable
	pool     *mem.Pool // packet buffers that are there already; nil: made

	congestion     string
	congestionOurs bool // --congestion is about our stack alone
	rtoMin         time.Duration
	ptoMin         time.Duration
	pacing         bool
	ecn            bool
	noDAD          bool
	dad            string
	mac            string
	noOffload      bool

	set *pflag.FlagSet // of which checkDevice asks what was given
}

// deviceFlags are of no use without a device of ours. --congestion is one too, except for a client,
// whose peer hears of it.
var deviceFlags = []string{
	"dev", "pci", "eal", "socket", "id", "role", "secret", "host-addr", "gateway", "vlan", "mtu", "queues", "core", "cores", "spin", "idle", "flow-control", "promiscuous", "fault", "capture", "ecn",
	"no-dad", "dad", "mac", "no-offload", "rto-min", "pto-min", "pacing", "no-markers", "markers", "drop-bad-crc",
}

// given are those of the named flags that stand on the command line, as they are written there.
func (o *nicOptions) given(names ...string) []string {
	var found []string
	for _, name := range names {
		if o.set != nil && o.set.Changed(name) {
			found = append(found, "--"+name)
		}
	}
	return found
}

func (o *nicOptions) flags(f *pflag.FlagSet) {
	o.set = f
	f.StringVar(&o.pmd, "pmd", "tap", "poll-mode driver: tap, dpdk, memif (shared memory to another process), or kernel (no driver: the kernel's TCP)")
	f.StringVar(&o.dev, "dev", "rnic0", "tap: device name; dpdk: name of the TAP that net_tap makes, or a whole vdev such as net_af_packet0,iface=eth1")
	f.StringVar(&o.pci, "pci", "", "dpdk: PCI address of a NIC, as after -a")
	f.StringVar(&o.eal, "eal", "", "dpdk: further EAL arguments, separated by spaces")
	o.memif.flags(f)
	f.StringSliceVar(&o.addrs, "addr", []string{"10.9.0.1/24"}, "addresses of our stack, IPv4 and IPv6; kernel: one of this host's, as 127.0.0.1 (default all)")
	f.StringVar(&o.hostAddr, "host-addr", "", "tap: address of the kernel's side, as 10.9.0.254/24; empty leaves it alone")
	f.StringSliceVar(&o.gateways, "gateway", nil, "routers for what is not on the link, of either family")
	f.Var(&number{&o.vlan, 0, vlanMax}, "vlan", "802.1Q tag of all frames, 1 to 4094; 0: untagged")
	f.IntVar(&o.mtu, "mtu", 1500, "largest IP packet, octets")
	f.IntVar(&o.queues, "queues", 1, "queues of the device, each with a poll-mode core of its own: --core and those after it, or --cores")
	f.IntVar(&o.core, "core", coreNone, "CPU to pin the poll-mode core to; -1: the scheduler's choice")
	f.StringVar(&o.cores, "cores", "", "CPUs to pin the poll-mode cores to, as 2-5 or 2,4,6; without --queues, a queue for each")
	f.BoolVar(&o.spin, "spin", false, "never give up the core, even when idle")
	f.StringVar(&o.idle, "idle", idleAdaptive, "what an idle poll-mode core does: "+strings.Join(idleNames, ", "))
	f.StringVar(&o.flowControl, "flow-control", "", "dpdk: pause frames, none, rx (heed), tx (send) or full (default: as the device has it)")
	f.BoolVar(&o.promiscuous, "promiscuous", false, "dpdk: take in frames to other addresses too")
	f.StringVar(&o.page, "page", "auto", "page size of packet and region memory: auto, 2M, 1G or normal")
	f.IntVar(&o.node, "node", hugepages.AnyNode, "NUMA node of the memory; -1: any")
	f.StringVar(&o.fault, "fault", "", "a bad network, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,delay=1ms,seed=7")
	f.StringVar(&o.capture, "capture", "", "write every frame to this pcapng file")
	f.BoolVar(&o.counters, "counters", false, "print all counters that are not 0 at the end; SIGUSR1 prints them at any time")
	if o.congestionOurs = f.Lookup("congestion") == nil; o.congestionOurs { // the client's says it to both ends
		f.StringVar(&o.congestion, "congestion", "cubic", "congestion control: "+strings.Join(cc.Names(), ", "))
	}
	f.DurationVar(&o.rtoMin, "rto-min", 200*time.Millisecond, "least retransmission timeout beyond the round trip; a few ms within a data centre")
	f.DurationVar(&o.ptoMin, "pto-min", time.Millisecond, "least time before a tail loss probe; 100us where both ends poll")
	f.BoolVar(&o.pacing, "pacing", false, "spread segments over the round trip instead of sending bursts")
	f.BoolVar(&o.ecn, "ecn", false, "ask for ECN, and accept it (RFC 3168)")
	f.StringVar(&o.dad, "dad", dadAuto, "how to look whether another host has our addresses: quick, a third of a second; full, the 4 to 7 s of RFC 5227 and 1 to 2 s of RFC 4862; auto: quick on a TAP, full on a NIC")
	f.BoolVar(&o.noDAD, "no-dad", false, "use addresses at once, without looking whether another host has them")
	f.StringVar(&o.mac, "mac", "", "MAC of our side of a TAP or memif (default: made of the host, the network namespace's name, the device's name and --addr, the same from start to start)")
	f.BoolVar(&o.noOffload, "no-offload", false, "cut and checksum everything ourselves, frame by frame")
}

// nic is an open port with its memory and the Poller on it.
type nic struct {
	arena   *hugepages.Arena
	packets *hugepages.Arena // where packet buffers lie: arena, or one that is shared with another process
	device  pmd.Port         // as opened
	port    pmd.Port         // with what the flags put in front of it
	capture *capture.Capture
	pollers []*stack.Poller // one for each queue
	region  []byte
	cancel  context.CancelFunc // nil until start
	stopped chan struct{}      // closed when the Poller has ended; runErr is settled then
	runErr  error
	watch   sync.WaitGroup
}

// queueCount is --queues, 1 where there is no such flag.
func (o *nicOptions) queueCount() int { return max(o.queues, 1) }

// check refuses what cannot be, before any memory is mapped or any device made.
func (o *nicOptions) check() error {
	if _, err := parseAddrs(o.addrs); err != nil {
		return err
	}
	if _, err := o.routes(); err != nil {
		return err
	}
	if _, err := parsePage(o.page); err != nil {
		return err
	}
	if err := o.checkOnLink(); err != nil {
		return err
	}
	if most := o.mtuMax(); o.mtu < mtuMin || o.mtu > most {
		return fmt.Errorf("--mtu %d: want %d to %d octets", o.mtu, mtuMin, most)
	}
	if _, err := o.control(); err != nil {
		return err
	}
	if _, err := o.idlePolicy(); err != nil {
		return err
	}
	if err := o.checkTimer("rto-min", o.rtoMin, rtoMinMax); err != nil {
		return err
	}
	if err := o.checkTimer("pto-min", o.ptoMin, ptoMinMax); err != nil {
		return err
	}
	if o.fault != "" {
		if _, err := fault.Parse(o.fault); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	return nil
}

// mtuMax is what the driver takes. NICs under DPDK take less than IPv4 allows, and say so
// themselves.
func (o *nicOptions) mtuMax() int {
	switch o.pmd {
	case "tap":
		return tap.MTUMax
	case "memif":
		return memif.MTUMax
	case "":
		return wire.MTUMax // demo's cable
	}
	return math.MaxUint16
}

// checkTimer refuses a time shorter than a turn of the Poller takes, or one that is no bound any
// more. Where there is no such flag zero is the default.
func (o *nicOptions) checkTimer(flag string, d, most time.Duration) error {
	if (d != 0 || len(o.given(flag)) > 0) && (d < timerMin || d > most) {
		return fmt.Errorf("--%s %v: want %v to %v", flag, d, timerMin, most)
	}
	return nil
}

// control is the congestion control that the flags name, nil for the stack's choice.
func (o *nicOptions) control() (cc.Algorithm, error) {
	if o.congestion == "" {
		return nil, nil
	}
	a, err := cc.ByName(o.congestion)
	if err != nil {
		return nil, fmt.Errorf("--congestion: %w", err)
	}
	return a, nil
}

// openNIC maps memory for packets and a region of regionBytes, opens the device and makes a Poller.
// port opens the device once there is memory.
func openNIC(o *nicOptions, regionBytes int64, log io.Writer, port func(*hugepages.Arena) (pmd.Port, error)) (*nic, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	page, err := parsePage(o.page)
	if err != nil {
		return nil, err
	}
	stride := o.stride()
	packets := int64(o.queueCount()) * int64(poolBufs*stride)
	if o.pool != nil {
		packets = 0
	}
	if regionBytes > math.MaxInt64-packets-arenaExtra {
		return nil, fmt.Errorf("--region: %d octets are more than can be addressed", regionBytes)
	}
	node := o.nodeOfDevice()
	inArena := packets
	if o.lendsPackets() {
		inArena = 0
	}
	n := &nic{}
	n.arena, err = hugepages.New(hugepages.Config{Bytes: inArena + regionBytes + arenaExtra, Page: page, Node: node})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "memory      %s on %s pages%s\n", octets(uint64(len(n.arena.Bytes()))), pageName(n.arena.PageSize()), fallbackNote(n.arena))
	n.packets = n.arena
	if o.lendsPackets() {
		// What is registered is nobody else's to see.
		n.packets, err = hugepages.New(hugepages.Config{Bytes: packets + arenaExtra, Page: page, Node: node, Memfd: true})
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	if err := n.open(o, stride, port); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if n.region, err = n.arena.Carve(int(regionBytes), regionAlign); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// stride is that of the packet buffers.
func (o *nicOptions) stride() int {
	room := o.mtu + frameExtra
	if o.pmd == "dpdk" {
		room = max(room, dpdkRoomMin)
	}
	return (mem.Headroom + room + strideAlign - 1) &^ (strideAlign - 1)
}

func (n *nic) open(o *nicOptions, stride int, port func(*hugepages.Arena) (pmd.Port, error)) error {
	device, err := port(n.packets)
	if err != nil {
		return err
	}
	n.device, n.port = device, device
	if err := n.wrap(o); err != nil {
		return err
	}
	var group *stack.Group
	if o.queueCount() > 1 {
		if group, err = stack.NewGroup(o.queueCount()); err != nil {
			return err
		}
	}
	// All queues first: how the port spreads over them is known then.
	queues, pools := make([]pmd.Queue, o.queueCount()), make([]*mem.Pool, o.queueCount())
	for i := range queues {
		if pools[i] = o.pool; o.pool == nil { // with a pool there is one queue
			if pools[i], err = mem.NewPool(n.packets, mem.PoolConfig{Bufs: poolBufs, Stride: stride}); err != nil {
				return err
			}
		}
		if queues[i], err = n.port.Open(i, pools[i]); err != nil {
			return err
		}
	}
	for i := range queues {
		if err := n.addPoller(o, i, queues[i], pools[i], group); err != nil {
			return err
		}
	}
	return nil
}

// addPoller makes a Poller on queue i of the device, which has packet memory of its own.
func (n *nic) addPoller(o *nicOptions, i int, queue pmd.Queue, pool *mem.Pool, group *stack.Group) error {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Name, cfg.Queue, cfg.Pool, cfg.Caps, cfg.MAC = n.port.Name(), queue, pool, n.port.Caps(), inet.MAC(n.port.MAC())
	cfg.Group, cfg.Member = group, i
	if cfg.Core, err = o.coreOf(i); err != nil {
		return err
	}
	p, err := stack.New(cfg)
	if err == nil {
		n.pollers = append(n.pollers, p)
	}
	return err
}

// config is what the flags say to the Poller.
func (o *nicOptions) config() (stack.Config, error) {
	addrs, err := parseAddrs(o.addrs)
	if err != nil {
		return stack.Config{}, err
	}
	routes, err := o.routes()
	if err != nil {
		return stack.Config{}, err
	}
	cfg := stack.Config{
		Addr: addrs[0], Addrs: addrs[1:], Routes: routes, VLAN: o.vlan, NoDAD: o.noDAD, QuickDAD: o.quickDAD(),
		MTU: o.mtu, ConnsMax: connsMax, PeerMax: int(o.peerMax), Core: o.core, Idle: stack.IdleAdaptive,
	}
	if cfg.Idle, err = o.idlePolicy(); err != nil {
		return cfg, err
	}
	if o.ecn {
		cfg.TCP.ECN = tcp.ECNActive
	}
	cfg.TCP.RTOMinNs, cfg.TCP.PTOMinNs, cfg.TCP.Pacing = int64(o.rtoMin), int64(o.ptoMin), o.pacing
	cfg.TCP.Congestion, err = o.control()
	return cfg, err
}

// wrap puts what the flags ask for in front of the device: faults, then the capture, which so sees
// what the stack sees.
func (n *nic) wrap(o *nicOptions) error {
	if o.fault != "" {
		spec, err := fault.Parse(o.fault)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		begin := time.Now()
		bad, err := fault.NewPort(n.port, spec, func() int64 { return int64(time.Since(begin)) })
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		n.port = bad
	}
	if o.capture != "" {
		var err error
		if n.capture, err = capture.Create(o.capture, capture.Config{}); err != nil {
			return fmt.Errorf("--capture: %w", err)
		}
		tee, err := n.capture.Port(n.port)
		if err != nil {
			return fmt.Errorf("--capture: %w", err)
		}
		n.port = tee
	}
	return nil
}

// start runs the Poller until Close; it returns when the Poller turns, or says why it does not.
func (n *nic) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.stopped = make(chan struct{})
	ends := make([]error, len(n.pollers))
	var running, turning sync.WaitGroup
	for i, p := range n.pollers {
		running.Go(func() {
			if ends[i] = p.Run(ctx); ends[i] != nil {
				cancel() // all or none
			}
		})
		turning.Add(1)
		if err := p.Submit(turning.Done); err != nil {
			turning.Done()
		}
	}
	go func() {
		running.Wait()
		n.runErr = errors.Join(ends...)
		close(n.stopped)
	}()
	all := make(chan struct{})
	go func() {
		turning.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-n.stopped:
		err := n.runErr
		n.runErr = nil // told here; Close need not tell it again
		return err
	}
}

// lostPeriod is how often the device is looked for.
const lostPeriod = time.Second

// whileThere returns a context that ends when ctx does, or the device is gone, or our last address
// another's; lost then says that. Meanwhile it tells of conflicts. For after start.
func (n *nic) whileThere(ctx context.Context, out *output) (while context.Context, lost func() error) {
	gone := func() error { return nil }
	if device, ok := n.device.(interface{ Lost() error }); ok {
		gone = device.Lost
	}
	c, full, health := conflicts{told: map[netip.Addr]told{}}, fullness{}, newHealth(n.device)
	while, cancel := context.WithCancelCause(ctx)
	n.watch.Go(func() {
		defer cancel(nil)
		tick := time.NewTicker(lostPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				err := gone()
				if err == nil {
					err = c.look(while, n.pollers[0], out)
					full.look(while, n.pollers, out)
					health.look(time.Now(), out)
				}
				if err != nil {
					cancel(err)
					return
				}
			case <-n.stopped:
				return
			}
		}
	})
	return while, func() error {
		if err := context.Cause(while); isLost(err) {
			return err
		}
		return nil
	}
}

// isLost is true of the reasons that whileThere has.
func isLost(err error) bool {
	return errors.Is(err, tap.ErrGone) || errors.Is(err, dpdk.ErrGone) || errors.Is(err, errAddrTaken)
}

// ending joins what a command ended with and what closing says. A device that has gone is the
// reason, the context that ended for it is not.
func ending(err, closing error) error {
	if isLost(closing) && errors.Is(err, context.Canceled) {
		return closing
	}
	return errors.Join(err, closing)
}

// Close stops the Poller and gives everything back.
func (n *nic) Close() error {
	var err error
	if n.cancel != nil {
		n.cancel()
		<-n.stopped
		err = n.runErr
	}
	n.watch.Wait()
	if n.port != nil {
		err = errors.Join(err, n.port.Close())
	}
	if n.capture != nil {
		err = errors.Join(err, n.capture.Close())
	}
	if n.packets != nil && n.packets != n.arena {
		err = errors.Join(err, n.packets.Close())
	}
	return errors.Join(err, n.arena.Close())
}

// adapter makes an rnic.Adapter on the NIC's Poller.
func (n *nic) adapter() (*rnic.Adapter, error) {
	cfg := rnic.Config{Pollers: n.pollers}
	if !raceEnabled {
		cfg.Arena = n.arena
	}
	return rnic.Open(cfg)
}

func parsePage(s string) (hugepages.PageSize, error) {
	switch s {
	case "auto":
		return hugepages.Auto, nil
	case "2M":
		return hugepages.Page2MiB, nil
	case "1G":
		return hugepages.Page1GiB, nil
	case "normal":
		return hugepages.Normal, nil
	}
	return 0, fmt.Errorf("--page %q: want auto, 2M, 1G or normal", s)
}

func pageName(p hugepages.PageSize) string {
	if p == hugepages.Normal {
		return "normal"
	}
	return p.String()
}

func fallbackNote(a *hugepages.Arena) string {
	if f := a.Fallback(); f != "" {
		return " (" + f + ")"
	}
	return ""
}
