// Package wire is an Ethernet in memory: two ports back to back, or a few on a switch that forwards
// by destination address.
//
// A frame is copied from the sender's Buf to a slot of a ring, and from the slot to a Buf of the
// receiver, like a NIC's DMA does; each end has its own pool. Any two ports have one
// single-producer single-consumer ring per direction: there are no locks, and each port may be on
// its own core. Nothing here reads a clock or starts a goroutine; used from one goroutine it is
// deterministic.
//
// With Config.ZeroCopy a pair of ports passes the Bufs themselves, like DPDK's net_ring
// (lend.go). Then the two Pools are a pair on the same memory (mem.NewPair).
//
// Limits: 16 ports, one queue each, no VLAN awareness, no loss on a pair of ports (a full ring is
// back-pressure); a switch drops at a full egress ring and counts it. Every frame sent to a port is
// received, whatever its destination address: promiscuous.
package wire

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

const (
	// PortsMax bounds a Link: a switch of N ports has N*(N-1) rings.
	PortsMax = 16
	// MTUMin is what IPv4 asks every link to carry (RFC 791 section 3.2).
	MTUMin = 68
	// MTUMax keeps a frame with its two tags below 64 KiB.
	MTUMax = 65535 - pmd.FrameOverhead

	mtuDefault   = 1500
	slotsDefault = 512 // where frames are not copied, and on a switch
	lineBytes    = 64
)

// Config says what a Link is to be. The zero value is a pair of ports at MTU 1500.
type Config struct {
	Ports int // 2 by default, at most PortsMax
	MTU   int // octets of IP packet; 1500 by default
	// Slots is how many frames there may be on their way from one port to another: a power of two. By
	// default 512, and between two ports that copy as many as have room in 4 MiB (2048 at MTU 1500).
	Slots int
	// ChecksumOffload lets the ports claim checksum offload. A frame cannot be damaged on its way
	// through memory, so one sent with mem.TxChecksum is not summed at all but handed over as
	// mem.RxChecksumGood, as virtio does; see pmd.Queue.Rx for what that asks of middleware.
	ChecksumOffload bool
	// ZeroCopy hands frames over in the Bufs that they were sent in. Two ports only, opened with the
	// two Pools of one mem.NewPair. The receiver may write to no such Buf (mem.Pool.Lent), and its
	// sender has it back when the receiver has freed it.
	ZeroCopy bool
	MACs     [][6]byte // one per port; 02:00:00:00:00:01 and on by default
	Names    []string  // one per port; wire0 and on by default
	// Memory holds the frames on their way: at least Config.MemoryBytes octets, aligned to 64
	// (carved from an arena). Nil takes it from the heap, where the race detector can see it.
	Memory []byte
}

// withDefaults fills in what is zero and says what is wrong with the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Ports == 0 {
		c.Ports = 2
	}
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	if c.Slots == 0 {
		c.Slots = slotsDefault
		if c.Ports == 2 && !c.ZeroCopy && c.MTU >= MTUMin && c.MTU <= MTUMax {
			c.Slots = slotsFor(c.stride())
		}
	}
	switch {
	case c.Ports < 2 || c.Ports > PortsMax:
		return c, fmt.Errorf("wire: %d ports wanted; a link has 2 to %d", c.Ports, PortsMax)
	case c.MTU < MTUMin || c.MTU > MTUMax:
		return c, fmt.Errorf("wire: MTU %d; must be %d to %d", c.MTU, MTUMin, MTUMax)
	case c.Slots < 1 || bits.OnesCount(uint(c.Slots)) != 1 || c.Slots > 1<<20:
		return c, fmt.Errorf("wire: %d slots; must be a power of two up to %d", c.Slots, 1<<20)
	case ringBytes(c.Slots, c.stride()) > ringBytesMax:
		return c, fmt.Errorf("wire: %d slots at MTU %d take %d octets; a ring has %d at most", c.Slots,
			c.MTU, ringBytes(c.Slots, c.stride()), ringBytesMax)
	case c.ZeroCopy && c.Ports != 2:
		return c, fmt.Errorf("wire: %d ports without copying; that is for a pair: a switch copies",
			c.Ports)
	case c.MACs != nil && len(c.MACs) != c.Ports:
		return c, fmt.Errorf("wire: %d MACs for %d ports; give one each or none", len(c.MACs), c.Ports)
	case c.Names != nil && len(c.Names) != c.Ports:
		return c, fmt.Errorf("wire: %d names for %d ports; give one each or none", len(c.Names), c.Ports)
	}
	return c, nil
}

// slotsOctets is how much memory a ring of copied frames takes at most by default, and more than
// half of it: a cell is then written again when it has left its reader's second-level cache, from
// where a line comes back several times slower than from the cache that cores share
// (mem.Pool.Circulate).
const slotsOctets = 4 << 20

// slotsFor is the default of Slots for cells of stride octets.
func slotsFor(stride int) int { return 1 << (bits.Len(uint(slotsOctets/stride)) - 1) }

// MemoryBytes is how much Memory a Link made from c takes, 0 when c is not valid.
func (c Config) MemoryBytes() int {
	c, err := c.withDefaults()
	if err != nil {
		return 0
	}
	return c.Ports * (c.Ports - 1) * ringBytes(c.Slots, c.stride())
}

// stride is that of the rings' cells.
func (c Config) stride() int {
	if c.ZeroCopy {
		return int(lentCellLen)
	}
	return cellStride(c.MTU + pmd.FrameOverhead)
}

// Link is the cable or switch between its ports.
type Link struct{ ports []*Port }

// New makes a Link. Its ports are taken with Port and opened by their users.
func New(cfg Config) (*Link, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	memory := cfg.Memory
	if memory == nil {
		memory = heapMemory(cfg.MemoryBytes())
	}
	if len(memory) < cfg.MemoryBytes() {
		return nil, fmt.Errorf("wire: %d octets of memory; %d ports of %d slots at MTU %d take %d",
			len(memory), cfg.Ports, cfg.Slots, cfg.MTU, cfg.MemoryBytes())
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%lineBytes != 0 {
		return nil, fmt.Errorf("wire: the memory is not aligned to %d octets", lineBytes)
	}
	l := &Link{ports: make([]*Port, cfg.Ports)}
	for i := range l.ports {
		l.ports[i] = newPort(i, cfg)
	}
	if cfg.ZeroCopy {
		pair := &poolPair{}
		l.ports[0].pair, l.ports[1].pair = pair, pair
	}
	each := ringBytes(cfg.Slots, cfg.stride())
	for _, from := range l.ports {
		for _, to := range l.ports {
			if from == to {
				continue
			}
			r := newRing(memory[:each:each], cfg.Slots, cfg.stride())
			memory = memory[each:]
			from.out = append(from.out, egress{ring: r, to: to})
			to.in = append(to.in, r)
		}
	}
	return l, nil
}

// Port returns port i, 0 <= i < Config.Ports.
func (l *Link) Port(i int) *Port { return l.ports[i] }

// defaultMAC is a locally administered unicast address.
func defaultMAC(i int) [6]byte { return [6]byte{0x02, 0, 0, 0, 0, byte(i + 1)} }

var _ pmd.Port = (*Port)(nil)
var _ pmd.Queue = (*queue)(nil)

// checkPool says whether the Bufs of p hold every frame of the link.
func checkPool(name string, p *mem.Pool, mtu int) error {
	if room, need := p.Stride()-p.Headroom(), mtu+pmd.FrameOverhead; room < need {
		return fmt.Errorf("wire: %s: Bufs of stride %d hold frames of %d octets; MTU %d needs %d: use "+
			"a larger stride or a smaller MTU",
			name, p.Stride(), room, mtu, need)
	}
	return nil
}
