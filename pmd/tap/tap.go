// Package tap is a port into the kernel of the same host: an Ethernet device of the kernel's whose cable ends in
// this process. It is how rnicd reaches ordinary programs and, over a bridge, an ordinary network, without a NIC
// of its own.
//
// One system call carries one frame: read for Rx, write for Tx, both raw and non-blocking, so that neither the
// scheduler nor the netpoller is in the Poller's way. An idle poll costs one read that finds nothing.
//
// With Config.Offload the kernel and we share memory and say so: checksums are left out in both directions, and
// frames of up to 64 KiB pass in one system call (virtio_net_hdr, IFF_VNET_HDR).
//
// Limits: Linux; one queue. The device ends with the process unless an operator made it persistent
// (ip tuntap add), in which case it is attached to and left as it was found.
package tap

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

const (
	// NameMax is IFNAMSIZ less its terminating zero.
	NameMax = unix.IFNAMSIZ - 1
	// MTUMin and MTUMax are what the kernel's driver takes (drivers/net/tun.c: ETH_MIN_MTU, and 65535 less an
	// Ethernet header).
	MTUMin = 68
	MTUMax = 65535 - pmd.EthernetLen

	mtuDefault  = 1500
	nameDefault = "tap%d"
)

// Config says which device and how it is set up.
type Config struct {
	Name string // up to NameMax octets; a %d in it lets the kernel number it; tap%d by default
	MTU  int    // of both sides, 1500 by default
	// MAC is our side's address. By default it is made from the kernel side's, which is random for each new
	// device; an address that outlives the process must be given.
	MAC [6]byte
	// Addr is the kernel side's address with its prefix length; the zero value leaves that to the operator.
	Addr netip.Prefix
	// Offload puts a virtio_net_hdr in front of every frame. The port then claims checksum offload and
	// segmentation; frames from the kernel's TCP come uncut when the pool's Bufs hold RxSegmentedMax octets behind
	// their headroom, else at the MTU.
	Offload bool
}

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = nameDefault
	}
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	switch {
	case len(c.Name) > NameMax:
		return c, fmt.Errorf("tap: name %q has %d octets; a device name has at most %d: choose a shorter one", c.Name, len(c.Name), NameMax)
	case c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/: \t\n\v\f\r\x00"):
		return c, fmt.Errorf("tap: name %q: a device name has no space, slash or colon and is not a dot: choose another", c.Name)
	case c.MTU < MTUMin || c.MTU > MTUMax:
		return c, fmt.Errorf("tap: %s: MTU %d; the kernel's driver takes %d to %d", c.Name, c.MTU, MTUMin, MTUMax)
	case c.MAC[0]&1 != 0:
		return c, fmt.Errorf("tap: %s: MAC %s is a group address; clear the low bit of its first octet", c.Name, net.HardwareAddr(c.MAC[:]))
	}
	return c, nil
}

// Port is an attached TAP device.
type Port struct {
	name   string
	mac    [6]byte
	mtu    int
	vnet   bool
	fds    []int // one per queue
	opened bool
}

var _ pmd.Port = (*Port)(nil)
var _ pmd.Queue = (*Queue)(nil)

// New creates the device, or attaches to it when it is there, in the network namespace of the calling thread,
// and brings it up. It needs CAP_NET_ADMIN, or a persistent device that belongs to the user and is set up.
func New(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	fd, name, err := attach(cfg.Name, cfg.Offload)
	if err != nil {
		return nil, err
	}
	p := &Port{name: name, mtu: cfg.MTU, vnet: cfg.Offload, fds: []int{fd}}
	kernelMAC, err := configure(name, cfg.MTU, cfg.Addr)
	if err != nil {
		return nil, closeAfter(p, err)
	}
	p.mac = cfg.MAC
	if p.mac == ([6]byte{}) {
		p.mac = otherEnd(kernelMAC)
	}
	if p.mac == kernelMAC {
		return nil, closeAfter(p, fmt.Errorf("tap: %s: both ends would have MAC %s; give ours another", name, net.HardwareAddr(p.mac[:])))
	}
	return p, nil
}

// closeAfter gives the device up after err.
func closeAfter(p *Port, err error) error {
	_ = p.Close()
	return err
}

// otherEnd makes a locally administered unicast address (IEEE 802, the 0x02 bit) that differs from the other
// side's and is as unlikely to be met elsewhere.
func otherEnd(mac [6]byte) [6]byte {
	mac[0] = mac[0]&^1 | 2
	mac[5] ^= 1
	return mac
}

func (p *Port) Name() string { return p.name }
func (p *Port) MAC() [6]byte { return p.mac }

// Caps: RxChecksum with Offload is of frames from this host's memory; others come without a verdict.
func (p *Port) Caps() pmd.Caps {
	return pmd.Caps{MTU: p.mtu, Queues: len(p.fds), RxChecksum: p.vnet, TxChecksum: p.vnet, TxSegment: p.vnet}
}

// Open gives queue 0. Errors: another queue, opened before, Bufs too small for the MTU.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if i < 0 || i >= len(p.fds) {
		return nil, fmt.Errorf("tap: %s: no queue %d; the device has %d", p.name, i, len(p.fds))
	}
	if p.opened {
		return nil, fmt.Errorf("tap: %s: queue %d is open already; a queue is opened once", p.name, i)
	}
	frameMax := p.mtu + pmd.FrameOverhead
	room := pool.Stride() - pool.Headroom()
	// One octet more than a frame may have: it tells a frame that just fits from one that was cut.
	if room < frameMax+1 {
		return nil, fmt.Errorf("tap: %s: Bufs of stride %d hold frames of %d octets; MTU %d needs %d: use a larger stride or a smaller MTU",
			p.name, pool.Stride(), room, p.mtu, frameMax+1)
	}
	q := &Queue{fd: p.fds[i], pool: pool, rxMax: frameMax, txMax: frameMax}
	if p.vnet {
		if pool.Headroom() < vnetLen {
			return nil, fmt.Errorf("tap: %s: Bufs have %d octets of headroom; offload needs %d", p.name, pool.Headroom(), vnetLen)
		}
		uncut := room >= RxSegmentedMax
		if err := setOffload(p.fds[i], uncut); err != nil {
			return nil, fmt.Errorf("tap: %s: offload: %w; this kernel cannot, turn Offload off", p.name, err)
		}
		q.vnet = true
		if uncut {
			q.rxMax = segmentedMax
		}
	}
	p.opened = true
	return q, nil
}

// Close gives the device up; one that is not persistent is gone from the system when it returns.
func (p *Port) Close() error {
	var first error
	for _, fd := range p.fds {
		if err := unix.Close(fd); err != nil && first == nil {
			first = fmt.Errorf("tap: %s: close: %w", p.name, err)
		}
	}
	p.fds = nil
	return first
}
