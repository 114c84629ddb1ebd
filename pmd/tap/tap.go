// Package tap is a port to the kernel of the same host: a TAP, an Ethernet device whose other end
// is this process. Over it rnicd reaches ordinary programs and, over a bridge, an ordinary
// network, without a NIC of its own.
//
// Each frame has a virtio_net_hdr (IFF_VNET_HDR) in front, with which both ends leave checksums
// out and pass up to 64 KiB in one system call. The layers above do not see this. A large frame
// of the kernel's TCP or UDP is split into Bufs, segments of its gso_size (scatter.go, cut.go).
// Consecutive segments of one of our flows are sent as one frame (gather.go); the kernel's own
// TCP receives it whole, others receive it split at the same boundaries. Without the header
// (Config.NoOffload, or an old kernel) a system call carries one frame.
//
// System calls are raw and non-blocking, and involve neither the scheduler nor the netpoller. An
// idle poll costs one read that finds nothing.
//
// Several queues (Config.Queues, IFF_MULTI_QUEUE): a frame of a flow on which a queue has sent
// within 3 s comes to that queue. Other frames come to a queue by a symmetric hash with an
// unknown key (tun_automq_select_queue, drivers/net/tun.c). So the answers to a connection that a
// queue opened come to that queue, while a first SYN, an ARP reply or an ICMP message comes to
// any queue: a user with one address on several queues must pass those on. Frames for a queue
// that was not opened are lost.
//
// docs/adr/0005-tap-batching.md has the alternatives, with figures.
//
// Limits: Linux. The device ends with the process, unless an operator made it persistent (ip tuntap
// add; with multi_queue for several queues); a persistent device is left as it was.
package tap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

const (
	// NameMax is IFNAMSIZ less its terminating zero.
	NameMax = unix.IFNAMSIZ - 1
	// MTUMin and MTUMax are what the kernel's driver takes (drivers/net/tun.c: ETH_MIN_MTU, and
	// 65535 less an Ethernet header).
	MTUMin = 68
	MTUMax = 65535 - pmd.EthernetLen

	mtuDefault  = 1500
	nameDefault = "tap%d"
)

// Config says which device and how it is set up.
type Config struct {
	Name string // up to NameMax octets; a %d in it lets the kernel number it; tap%d by default
	MTU  int    // of both sides, 1500 by default
	// MAC is our side's address. By default it is made of the host (machine id and name), the name
	// of the network namespace if it has one (ip netns), the device's name and Seed, and so is the
	// same from start to start: stations that know it need not find out. A host without identity
	// gets one made from the kernel side's, which is random for each new device.
	MAC [6]byte
	// Seed is what else tells this device from others of its name, of this host's other network
	// namespaces: our IP addresses, say. Two devices on one link must not have one MAC.
	Seed string
	// Addr is the kernel side's address with its prefix length, which the kernel uses when New
	// returns; the zero value leaves that to the operator. The kernel does not look for another
	// station that has it: we are the only other one on the link.
	Addr netip.Prefix
	// NoOffload leaves the virtio_net_hdr out: one frame of the MTU per system call, checksums
	// complete.
	NoOffload bool
	Queues    int // 1 by default, up to what the kernel has (256)
}

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = nameDefault
	}
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	switch {
	case c.Queues < 0:
		return c, fmt.Errorf("tap: %s: %d queues; at least 1 is needed", c.Name, c.Queues)
	case len(c.Name) > NameMax:
		return c, fmt.Errorf("tap: name %q has %d octets; a device name has at most %d: choose a "+
			"shorter one", c.Name, len(c.Name), NameMax)
	case c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/: \t\n\v\f\r\x00"):
		return c, fmt.Errorf("tap: name %q: a device name has no space, slash or colon and is not a "+
			"dot: choose another", c.Name)
	case c.MTU < MTUMin || c.MTU > MTUMax:
		return c, fmt.Errorf("tap: %s: MTU %d; the kernel's driver takes %d to %d", c.Name, c.MTU,
			MTUMin, MTUMax)
	case c.MAC[0]&1 != 0:
		return c, fmt.Errorf("tap: %s: MAC %s is a group address; clear the low bit of its first octet",
			c.Name, net.HardwareAddr(c.MAC[:]))
	}
	return c, nil
}

// Port is an attached TAP device.
type Port struct {
	name   string
	mac    [6]byte
	mtu    int
	vnet   bool
	fds    []int    // one per queue
	queues []*queue // those opened

	control int      // a socket in the device's network namespace, for Trouble
	link    *watcher // WatchLink's
	watched *os.File // its socket
	watch   sync.WaitGroup
}

var _ pmd.LinkWatcher = (*Port)(nil)
var _ pmd.Troubled = (*Port)(nil)
var _ pmd.Queue = (*queue)(nil)

// New creates the device, or attaches to it when it is there, in the network namespace of the
// calling thread, and brings it up. It needs CAP_NET_ADMIN, or a persistent device that belongs to
// the user and is set up.
func New(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	known := features()
	if cfg.Queues > 1 && known&unix.IFF_MULTI_QUEUE == 0 {
		return nil, fmt.Errorf("tap: %s: %d queues; this kernel's driver has one (no IFF_MULTI_QUEUE): "+
			"ask for one", cfg.Name, cfg.Queues)
	}
	fds, name, vnet, err := attach(cfg.Name, cfg.Queues, !cfg.NoOffload &&
		known&unix.IFF_VNET_HDR != 0)
	if err != nil {
		return nil, err
	}
	p := &Port{name: name, mtu: cfg.MTU, vnet: vnet, fds: fds, queues: make([]*queue, cfg.Queues)}
	if p.control, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, closeAfter(p, fmt.Errorf("tap: %s: %w", name, err))
	}
	kernelMAC, err := configure(name, cfg.MTU, cfg.Addr)
	if err != nil {
		return nil, closeAfter(p, err)
	}
	p.mac = cfg.MAC
	if p.mac == ([6]byte{}) {
		var ok bool
		if p.mac, ok = StableMAC(name, cfg.Seed); !ok {
			p.mac = otherEnd(kernelMAC)
		}
	}
	if p.mac == kernelMAC {
		return nil,
			closeAfter(p, fmt.Errorf("tap: %s: both ends would have MAC %s; give ours another", name,
				net.HardwareAddr(p.mac[:])))
	}
	return p, nil
}

// closeAfter gives the device up after err.
func closeAfter(p *Port, err error) error {
	_ = p.Close()
	return err
}

// otherEnd makes a locally administered unicast address (IEEE 802, the 0x02 bit) that differs from
// the other side's and is as unlikely to be met elsewhere.
func otherEnd(mac [6]byte) [6]byte {
	mac[0] = mac[0]&^1 | 2
	mac[5] ^= 1
	return mac
}

func (p *Port) Name() string { return p.name }
func (p *Port) MAC() [6]byte { return p.mac }

// Caps: without offload there is neither checksum nor segmentation. RxChecksum is of frames from
// this host's memory; others come without a verdict.
func (p *Port) Caps() pmd.Caps {
	return pmd.Caps{MTU: p.mtu, Queues: len(p.queues), RxChecksum: p.vnet, TxChecksum: p.vnet,
		TxSegment: p.vnet}
}

// Open gives queue i. With offload it takes up to a quarter of the pool, 128 Bufs at most, in
// advance while large frames come. Errors: no such queue, opened before, Bufs too small for the
// MTU, or with offload too little headroom.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if i < 0 || i >= len(p.fds) {
		return nil, fmt.Errorf("tap: %s: no queue %d; the device has %d", p.name, i, len(p.fds))
	}
	if p.queues[i] != nil {
		return nil, fmt.Errorf("tap: %s: queue %d is open already; a queue is opened once", p.name, i)
	}
	frameMax := p.mtu + pmd.FrameOverhead
	room := pool.Stride() - pool.Headroom()
	// One octet more than a frame may have: it tells a frame that just fits from one that was cut.
	if room < frameMax+1 {
		return nil, fmt.Errorf("tap: %s: Bufs of stride %d hold frames of %d octets; MTU %d needs %d: "+
			"use a larger stride or a smaller MTU",
			p.name, pool.Stride(), room, p.mtu, frameMax+1)
	}
	q := &queue{fd: p.fds[i], pool: pool, rxMax: frameMax, txMax: frameMax, vnet: p.vnet}
	if p.vnet {
		if pool.Headroom() < mem.Headroom {
			return nil, fmt.Errorf("tap: %s: Bufs have %d octets of headroom; offload needs %d: use more, "+
				"or NoOffload",
				p.name, pool.Headroom(), mem.Headroom)
		}
		q.scatter = newScatter(pool, p.mtu)
	}
	p.queues[i] = q
	return q, nil
}

// ErrGone is what Lost finds.
var ErrGone = errors.New("the device is gone: somebody deleted it, or its network namespace " +
	"ended; nothing can be received or sent any more")

// Lost asks the kernel whether the device is still there, and returns ErrGone with its name if it
// is not. A queue cannot say so: it only counts errors. From any goroutine, not during or after
// Close; one system call.
func (p *Port) Lost() error {
	ifr, err := unix.NewIfreq(p.name)
	if err == nil {
		err = unix.IoctlIfreq(p.fds[0], unix.TUNGETIFF, ifr)
	}
	if errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("tap: %s: %w", p.name, ErrGone)
	}
	return nil
}

// Close gives the device up; one that is not persistent is gone from the system when it returns.
// Bufs that the queues took in advance go back to their pools, so the goroutines of those must have
// ended.
func (p *Port) Close() error {
	for _, q := range p.queues {
		if q != nil {
			q.giveBack()
		}
	}
	if p.vnet && len(p.fds) > 0 {
		_ = unix.IoctlSetInt(p.fds[0], unix.TUNSETOFFLOAD, 0) // a persistent device is left without
	}
	if p.watched != nil {
		_ = p.watched.Close()
		p.watch.Wait()
	}
	var first error
	for _, fd := range p.fds {
		if err := unix.Close(fd); err != nil && first == nil {
			first = fmt.Errorf("tap: %s: close: %w", p.name, err)
		}
	}
	p.fds = nil
	if p.control > 0 { // 0: it was not made, or is closed
		_ = unix.Close(p.control)
	}
	p.control = 0
	return first
}
