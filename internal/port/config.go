package port

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Limits and defaults of a Config.
const (
	QueuesMax      = 64
	ConnsDefault   = 256
	PeerMaxDefault = 3 * ConnsDefault / 4 // leaves a quarter of the connections to others
	MTUDefault     = 1500
	// what every IPv4 host takes (RFC 791 section 3.1); the stack's least
	MTUMin    = 576
	MTUMin6   = inet.IPv6MTUMin // of a port with an IPv6 address (RFC 8200 section 5)
	VLANMax   = 4094            // IEEE 802.1Q: 4095 is reserved
	CPUMax    = 1023            // the last one that an affinity mask of unix.CPUSet names
	NoCore    = -1
	TimerMin  = 10 * time.Microsecond // some turns of a Poller
	RTOMinMax = time.Minute           // tcp.Config.RTOMaxNs
	PTOMinMax = time.Second
	// of each queue, however many connections (docs/results/scale.md); stack.Open grows with them
	poolBufs    = 8192
	strideAlign = 64
	arenaExtra  = 8 << 20 // descriptors, queues' rings, alignment
	regionAlign = 4096
	// Ethernet header, two VLAN tags, and the octet that tells a cut frame from a full one
	frameExtra      = 64
	memoryOctetsMax = math.MaxInt64 - arenaExtra
)

// DAD is how to look whether another host has our addresses.
type DAD int

// The ways.
const (
	DADAuto  DAD = iota // quick where the driver says that the other end answers at once
	DADQuick            // a third of a second
	DADFull             // the 4 to 7 s of RFC 5227 and 1 to 2 s of RFC 4862
	DADNone             // use addresses at once
)

// Config says what a Port is made of. Device to Options are what drivers read; they ignore what is
// not for them.
type Config struct {
	Driver Driver

	Device      string            // a name, as the driver has them
	PCI         string            // a NIC's address
	EAL         []string          // further arguments of DPDK's environment
	Socket      string            // memif: of the server
	ID          uint32            // memif: of the interface on that socket
	Serve       bool              // memif: be the server
	Secret      string            // memif
	HostAddr    netip.Prefix      // tap: of the kernel's side
	MAC         [6]byte           // zero: the driver's choice
	FlowControl string            // dpdk
	Promiscuous bool              // dpdk
	NoOffload   bool              // no checksums or segmentation by the device
	Options     map[string]string // what the driver has besides, each judged by Driver.Option

	Addrs []netip.Prefix // ours; none over the kernel's sockets
	// over the kernel's sockets: one of this host's, with its zone, or the zero Addr for all
	HostAt   netip.Addr
	Gateways []netip.Addr
	VLAN     uint16
	MTU      int // default MTUDefault
	Queues   int // default 1; each has a Poller
	Cores    []int
	Idle     stack.Idle
	DAD      DAD

	ConnsMax int // of a Poller, default ConnsDefault
	PeerMax  int // of one address; 0: no limit

	Pool   *mem.Pool // of packet buffers, for one queue, that is there already; nil: made
	Page   hugepages.PageSize
	Node   int   // NUMA, or hugepages.AnyNode, which is the device's where the driver knows it
	Region int64 // octets of memory for the application

	Congestion     tcp.Congestion // nil: the stack's choice
	RTOMin, PTOMin time.Duration
	Pacing, ECN    bool

	// DialPorts are the TCP ports that connections are dialled from; zero: the stack's choice.
	DialPorts stack.PortRange

	Fault   *fault.Spec // a bad network in front of the device
	Capture string      // a pcapng file of all frames
	// CaptureDirect has the Pollers write it themselves, as capture.Config.Direct says.
	CaptureDirect bool
	OnTurn        func() int              // of every Poller; see stack.Config
	OnFirstTurn   func() int              // of the first one, instead
	Bell          *stack.Bell             // of the Poller, where there is one only; see stack.Config
	Fell          func(rnic.FlightRecord) // see rnic.Config
}

// Poll has the only Poller, or the loop over kernel sockets, look for work in each Turn, of threads
// that wake it by bell; false: there are several. Such threads may compute, or look at memory, on
// the core that the Poller needs, so that one that were adaptive sleeps until it is woken, where
// its device can do that.
func (c *Config) Poll(look func() int, bell *stack.Bell) bool {
	if !c.Driver.Sockets && c.QueueCount() != 1 {
		return false
	}
	c.OnTurn, c.Bell = look, bell
	if c.Idle == stack.IdleAdaptive && c.Driver.Interrupts && c.Fault == nil {
		c.Idle = stack.IdleInterrupt
	}
	return true
}

// QueueCount is Queues, or the default.
func (c *Config) QueueCount() int { return max(c.Queues, 1) }

// MTUOr is MTU, or the default.
func (c *Config) MTUOr() int {
	if c.MTU == 0 {
		return MTUDefault
	}
	return c.MTU
}

// stride is how far packet buffers are apart.
func (c *Config) stride(headroom int) int {
	room := max(c.MTUOr()+frameExtra, c.Driver.RoomMin)
	return (headroom + room + strideAlign - 1) &^ (strideAlign - 1)
}

// packetBytes is the size of the packet buffers that Open makes.
func (c *Config) packetBytes() int64 {
	if c.Pool != nil {
		return 0
	}
	return int64(c.QueueCount()) * int64(poolBufs*c.stride(mem.Headroom))
}

// Arenas are the sizes of the arenas that Open maps, in octets: the port's and, where packet
// buffers are shared with another process, theirs.
func (c *Config) Arenas() []int64 {
	switch {
	case c.Driver.Sockets && c.Region == 0:
		return nil
	case c.Driver.Sockets:
		return []int64{c.Region}
	case c.Driver.lends(c):
		return []int64{c.Region + arenaExtra, c.packetBytes() + arenaExtra}
	}
	return []int64{c.packetBytes() + c.Region + arenaExtra}
}

// Core is the CPU of the Poller on queue i, or NoCore.
func (c *Config) Core(i int) int {
	if i < len(c.Cores) {
		return c.Cores[i]
	}
	return NoCore
}

// Seed tells devices of one name in several network namespaces of a host apart, for a driver that
// makes a MAC.
func (c *Config) Seed() string {
	s := ""
	for i, a := range c.Addrs {
		if i > 0 {
			s += ","
		}
		s += a.String()
	}
	return s
}

// QuickDAD says how the addresses are checked.
func (c *Config) QuickDAD() bool {
	if c.DAD == DADAuto {
		return c.Driver.QuickDAD != nil && c.Driver.QuickDAD(c)
	}
	return c.DAD == DADQuick
}

// routes are the default routes by the gateways.
func (c *Config) routes() (all []inet.Route) {
	for _, a := range c.Gateways {
		any := netip.IPv4Unspecified()
		if a.Is6() {
			any = netip.IPv6Unspecified()
		}
		all = append(all, inet.Route{Prefix: netip.PrefixFrom(any, 0), Gateway: a})
	}
	return all
}

// Stack is what the Poller on queue i is told, except for what comes of the open device.
func (c *Config) Stack(i int) stack.Config {
	cfg := stack.Config{
		Addr: c.Addrs[0], Addrs: c.Addrs[1:], Routes: c.routes(), VLAN: c.VLAN, NoDAD: c.DAD == DADNone,
		QuickDAD: c.QuickDAD(),
		MTU:      c.MTUOr(), ConnsMax: c.ConnsMax, PeerMax: c.PeerMax,
		Core: stack.OnCPU(c.Core(i)), Idle: c.Idle, OnTurn: c.OnTurn, Bell: c.Bell,
		DialPorts: c.DialPorts,
	}
	if i == 0 && c.OnFirstTurn != nil {
		cfg.OnTurn = c.OnFirstTurn
	}
	if cfg.ConnsMax == 0 {
		cfg.ConnsMax = ConnsDefault
	}
	if c.ECN {
		cfg.TCP.ECN = tcp.ECNActive
	}
	cfg.TCP.RTOMinNs, cfg.TCP.PTOMinNs, cfg.TCP.Pacing, cfg.TCP.Congestion = int64(c.RTOMin),
		int64(c.PTOMin), c.Pacing, c.Congestion
	return cfg
}

// MTUMost is the largest MTU that the driver takes.
func (c *Config) MTUMost() int {
	if c.Driver.MTUMax != 0 {
		return c.Driver.MTUMax
	}
	return math.MaxUint16 // NICs take less than IPv4 allows, and say so themselves
}

// CheckStation refuses what can be no host's address.
func CheckStation(p netip.Prefix) error { return inet.CheckStation(p) }

// ParseMAC reads the address of one station.
func ParseMAC(text string) (mac [6]byte, err error) {
	b, err := net.ParseMAC(text)
	if err != nil || len(b) != len(mac) || b[0]&1 != 0 || [6]byte(b) == mac {
		return mac, fmt.Errorf("want the address of one station, as 02:00:0a:09:00:01")
	}
	return [6]byte(b), nil
}

// ParsePorts reads a TCP port, or the first and the last of a range.
func ParsePorts(s string) (r stack.PortRange, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || first > last {
		return r, errors.New(`want TCP ports, as 7174 or 32768-40000`)
	}
	return stack.PortRange{First: uint16(first), Last: uint16(last)}, nil
}

// ParseCores reads a list of CPUs as the kernel writes one: 2-5,8.
func ParseCores(s string) (cores []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first > last || last > CPUMax {
			return nil, errors.New("want CPUs as 2-5 or 2,4,6")
		}
		for c := int(first); c <= int(last); c++ {
			if slices.Contains(cores, c) {
				return nil, fmt.Errorf("%d twice; a Poller has a CPU of its own", c)
			}
			cores = append(cores, c)
		}
	}
	return cores, nil
}

// ParsePage reads the size of pages.
func ParsePage(s string) (hugepages.PageSize, error) {
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
	return 0, fmt.Errorf("want auto, 2M, 1G or normal")
}

// IdleNames are the policies of stack.Idle, at its numbers.
var IdleNames = []string{"adaptive", "spin", "pause", "sleep", "interrupt"}
