package vswitch

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

// Bounds.
const (
	CoresMax     = 16
	UplinksMax   = 8
	ProgramsMax  = 1024
	AddrsMax     = 16 // of a program
	SharersMax   = 32 // programs of one address
	RangesMax    = 64 // of ports, of a program
	QueuesMax    = 16
	BuffersMax   = 1 << 16
	RateMax      = 1 << 37 // a second: some Tbit/s
	NoUplink     = -1
	burst        = 32
	buffersSpare = 1024 // of a core, beside those of programs: what is in hand
	strideAlign  = 64
)

// Defaults.
const (
	BuffersDefault   = 512
	MTUDefault       = 1500
	MulticastDefault = 10_000
)

// Config of a Switch.
type Config struct {
	Cores   int // that turn it; 1 by default
	Uplinks []Uplink
	// Arena holds the packet buffers: MemoryBytes of it.
	Arena *hugepages.Arena
	// Buffers of each core; by default as many as its programs and uplinks may hold, and some more.
	// A change may add programs up to that.
	Buffers int
	// Multicast bounds the copies of frames to groups that are made for each program and each queue
	// of an uplink that sends them, a second; MulticastDefault by default.
	Multicast int64
	Sockets   Sockets
	Programs  []Program
}

// Sockets are the limits of every socket of the switch.
type Sockets struct {
	Mode        os.FileMode // 0600 by default
	MemoryMax   int64       // octets that one program may have mapped; 1 GiB by default
	RingLog2Max int         // of the descriptors of a program's rings; 14 by default
	Unsealed    bool        // as memif.ListenConfig.Unsealed
	// Refused, if set, is told of clients that cannot attach, as memif.ListenConfig.Refused is.
	Refused func(socket string, peer memif.Peer, err error)
}

// Uplink is a device. It is in promiscuous mode, takes and gives complete checksums, and is
// closed by its owner after the Switch.
type Uplink struct {
	Port    pmd.Port
	Queues  int // polled on the first cores, one each; 1 by default
	Buffers int // that may wait for each queue; BuffersDefault by default
}

// Program is a client of memif that may attach.
type Program struct {
	Name   string
	Socket string
	ID     uint32
	Secret string   // none: it need not know one
	UIDs   []uint32 // of the process that may attach, by the kernel's word; none: any
	GIDs   []uint32

	Uplink int // number of its uplink, or NoUplink
	VLAN   uint16
	MAC    inet.MAC
	Addrs  []inet.Addr
	// Ports are TCP ports of an address that other programs share. They all have the same MAC and
	// Addrs.
	Ports []PortRange

	MTU           int // MTUDefault by default
	Queues        int // pairs of rings, 1 by default
	Core          int
	Buffers       int  // that may wait for it; BuffersDefault by default
	Send, Receive Rate // as it sees them
}

// PortRange is TCP ports, both included.
type PortRange struct{ First, Last uint16 }

// Rate is how much a program may send or receive in a second; 0: unlimited. Bursts of 10 ms may be
// faster.
type Rate struct{ Octets, Frames int64 }

// defaults are filled in where there is 0.
func (c Config) withDefaults() Config {
	c.Cores = max(c.Cores, 1)
	c.Uplinks, c.Programs = slices.Clone(c.Uplinks), slices.Clone(c.Programs)
	for i := range c.Uplinks {
		u := &c.Uplinks[i]
		u.Queues = max(u.Queues, 1)
		u.Buffers = orDefault(u.Buffers, BuffersDefault)
	}
	for i := range c.Programs {
		c.Programs[i].setDefaults()
	}
	if c.Multicast == 0 {
		c.Multicast = MulticastDefault
	}
	if c.Buffers == 0 {
		for core := range c.Cores {
			c.Buffers = max(c.Buffers, c.held(core)+buffersSpare)
		}
		c.Buffers *= 2 // room for programs to come
	}
	return c
}

func (p *Program) setDefaults() {
	p.MTU, p.Queues, p.Buffers = orDefault(p.MTU, MTUDefault), orDefault(p.Queues, 1),
		orDefault(p.Buffers, BuffersDefault)
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// held is how many Bufs may wait on a core.
func (c *Config) held(core int) (n int) {
	for i := range c.Uplinks {
		if core < c.Uplinks[i].Queues {
			n += c.Uplinks[i].Buffers
		}
	}
	for i := range c.Programs {
		if c.Programs[i].Core == core {
			n += c.Programs[i].Buffers
		}
	}
	return n + (c.Cores-1)*wireBuffers
}

// mtu is the largest.
func (c *Config) mtu() int {
	mtu := MTUDefault
	for i := range c.Uplinks {
		mtu = max(mtu, c.Uplinks[i].Port.Caps().MTU)
	}
	for i := range c.Programs {
		mtu = max(mtu, c.Programs[i].MTU)
	}
	return mtu
}

func (c *Config) pool() mem.PoolConfig {
	return mem.PoolConfig{Bufs: c.Buffers, Stride: strideOf(c.mtu())}
}

// dpdkRoomMin is what drivers of DPDK want of a Buf, whatever the MTU.
const dpdkRoomMin = 2048

func strideOf(mtu int) int {
	return (mem.Headroom + max(mtu+pmd.FrameOverhead+wireHeader+1, dpdkRoomMin) +
		strideAlign - 1) &^ (strideAlign - 1)
}

// MemoryBytes is the size of the packet buffers in the arena, given the largest MTU of uplinks,
// which need not be open yet.
func (c Config) MemoryBytes(uplinkMTU int) int64 {
	c.Uplinks = slices.Clone(c.Uplinks)
	full := c.withDefaults()
	mtu := max(uplinkMTU, MTUDefault)
	for i := range full.Programs {
		mtu = max(mtu, full.Programs[i].MTU)
	}
	return int64(full.Cores) * int64(full.Buffers*strideOf(mtu)+poolAlign)
}

const poolAlign = 4096

// check says what cannot be.
func (c *Config) check() error {
	switch {
	case c.Cores > CoresMax:
		return fmt.Errorf("vswitch: %d cores; want 1 to %d", c.Cores, CoresMax)
	case len(c.Uplinks) > UplinksMax:
		return fmt.Errorf("vswitch: %d uplinks; want up to %d", len(c.Uplinks), UplinksMax)
	case len(c.Programs) > ProgramsMax:
		return fmt.Errorf("vswitch: %d programs; want up to %d", len(c.Programs), ProgramsMax)
	case c.Arena == nil:
		return errors.New("vswitch: no Arena for packet buffers")
	case c.Multicast < 0:
		return fmt.Errorf("vswitch: %d copies of multicast a second", c.Multicast)
	}
	for i := range c.Uplinks {
		if q := c.Uplinks[i].Queues; q > c.Cores || q > c.Uplinks[i].Port.Caps().Queues {
			return fmt.Errorf("vswitch: uplink %s: %d queues; want as many as there are cores (%d) and "+
				"the device has (%d) at most",
				c.Uplinks[i].Port.Name(), q, c.Cores, c.Uplinks[i].Port.Caps().Queues)
		}
	}
	for core := range c.Cores {
		if err := c.room(core, 0); err != nil {
			return err
		}
	}
	return CheckPrograms(c.Programs, c.Cores, len(c.Uplinks))
}

// room checks the buffers of a core. Devices keep some of them to receive into.
func (c *Config) room(core, kept int) error {
	if held := c.held(core); held+kept+buffersSpare > c.Buffers {
		return fmt.Errorf("vswitch: programs and uplinks of core %d may hold %d buffers; it has %d, of "+
			"which %d are kept to receive into and %d are in hand: "+
			"raise switch.buffers, and restart", core, held, c.Buffers, kept, buffersSpare)
	}
	return nil
}

// ProgramError is an error in the configuration of a program.
type ProgramError struct {
	Index int    // of the program
	Key   string // what of it
	Text  string
}

func (e *ProgramError) Error() string {
	return fmt.Sprintf("program %d: %s: %s", e.Index, e.Key, e.Text)
}

// CheckPrograms checks programs, each and together; the error is a *ProgramError.
func CheckPrograms(programs []Program, cores, uplinks int) error {
	type id struct {
		socket string
		id     uint32
	}
	ids, names := map[id]int{}, map[string]int{}
	for i := range programs {
		p := programs[i]
		p.setDefaults()
		if key, text := p.check(cores, uplinks); key != "" {
			return &ProgramError{i, key, text}
		}
		if j, ok := names[p.Name]; ok {
			return &ProgramError{i, "name", fmt.Sprintf("%q is program %d's; choose another", p.Name, j)}
		}
		if j, ok := ids[id{p.Socket, p.ID}]; ok {
			return &ProgramError{i, "id", fmt.Sprintf("%d on %s is %q's; choose another", p.ID, p.Socket,
				programs[j].Name)}
		}
		names[p.Name], ids[id{p.Socket, p.ID}] = i, i
		for j := range i {
			if key, text := p.against(&programs[j]); key != "" {
				return &ProgramError{i, key, text}
			}
		}
	}
	for i := range programs {
		p := &programs[i]
		n := 0
		for j := range programs {
			if p.sharesWith(&programs[j]) {
				n++
			}
		}
		if n > SharersMax {
			return &ProgramError{i, "addresses", fmt.Sprintf("%d programs have them; want up to %d", n,
				SharersMax)}
		}
	}
	return nil
}

func (p *Program) check(cores, uplinks int) (key, text string) {
	switch {
	case p.Name == "" || len(p.Name) > 31:
		return "name", "want 1 to 31 octets"
	case p.Socket == "":
		return "socket", "missing: the Unix socket that it attaches to"
	case p.MAC.IsGroup() || p.MAC.IsZero():
		return "mac", fmt.Sprintf("%v: want the address of one station", p.MAC)
	case len(p.Addrs) == 0 || len(p.Addrs) > AddrsMax:
		return "addresses", fmt.Sprintf("%d of them; want 1 to %d", len(p.Addrs), AddrsMax)
	case p.Uplink != NoUplink && (p.Uplink < 0 || p.Uplink >= uplinks):
		return "uplink", "there is no such uplink"
	case p.Core < 0 || p.Core >= cores:
		return "core", fmt.Sprintf("%d: want 0 to %d", p.Core, cores-1)
	case p.VLAN > 4094:
		return "vlan", fmt.Sprintf("%d: want 0 to 4094", p.VLAN)
	case p.Queues < 1 || p.Queues > QueuesMax:
		return "queues", fmt.Sprintf("%d: want 1 to %d", p.Queues, QueuesMax)
	case p.Buffers < burst || p.Buffers > BuffersMax:
		return "buffers", fmt.Sprintf("%d: want %d to %d", p.Buffers, burst, BuffersMax)
	case len(p.Ports) > RangesMax:
		return "ports", fmt.Sprintf("%d ranges; want up to %d", len(p.Ports), RangesMax)
	case p.Send.wrong() || p.Receive.wrong():
		return "rate", fmt.Sprintf("want 0 to %d a second", int64(RateMax))
	}
	for i, a := range p.Addrs {
		if !a.IsStation() {
			return "addresses", fmt.Sprintf("%v: want the unicast address of a host", a)
		}
		if slices.Contains(p.Addrs[:i], a) {
			return "addresses", fmt.Sprintf("%v twice", a)
		}
	}
	for _, r := range p.Ports {
		if r.First == 0 || r.First > r.Last {
			return "ports", fmt.Sprintf("%d-%d: want the first and the last of them", r.First, r.Last)
		}
	}
	return "", ""
}

func (r Rate) wrong() bool {
	return r.Octets < 0 || r.Octets > RateMax || r.Frames < 0 || r.Frames > RateMax
}

// sameLink: frames of one can reach the other.
func (p *Program) sameLink(o *Program) bool { return p.Uplink == o.Uplink && p.VLAN == o.VLAN }

// sharesWith: they have one address.
func (p *Program) sharesWith(o *Program) bool {
	return p.sameLink(o) && slices.ContainsFunc(p.Addrs, func(a inet.Addr) bool {
		return slices.Contains(o.Addrs, a)
	})
}

// against compares with an earlier program.
func (p *Program) against(o *Program) (key, text string) {
	if !p.sameLink(o) {
		return "", ""
	}
	if !p.sharesWith(o) {
		if p.MAC == o.MAC {
			return "mac", fmt.Sprintf("%v is %q's; each station has its own", p.MAC, o.Name)
		}
		if a := inet.LinkLocal(o.MAC); slices.Contains(p.Addrs, a) {
			return "addresses", fmt.Sprintf("%v is the link-local address of %q's MAC; choose another", a,
				o.Name)
		}
		if a := inet.LinkLocal(p.MAC); slices.Contains(o.Addrs, a) {
			return "mac", fmt.Sprintf("%v: its link-local address, %v, is one of %q's; choose another",
				p.MAC, a, o.Name)
		}
		return "", ""
	}
	mine, others := slices.Clone(p.Addrs), slices.Clone(o.Addrs)
	order := func(a, b inet.Addr) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(mine, order)
	slices.SortFunc(others, order)
	switch {
	case !slices.Equal(mine, others):
		return "addresses", fmt.Sprintf("%q has some of them; programs that share an address share all "+
			"that they have", o.Name)
	case p.MAC != o.MAC:
		return "mac", fmt.Sprintf("%v: %q has the same addresses, and %v; programs that share an "+
			"address share its MAC", p.MAC, o.Name, o.MAC)
	case len(p.Ports) == 0 || len(o.Ports) == 0:
		return "ports", fmt.Sprintf("%q has the same addresses: each needs TCP ports of its own, as "+
			"\"7000-7099\"", o.Name)
	}
	for _, a := range p.Ports {
		for _, b := range o.Ports {
			if a.First <= b.Last && b.First <= a.Last {
				return "ports", fmt.Sprintf("%d-%d: %q has some of them", a.First, a.Last, o.Name)
			}
		}
	}
	return "", ""
}

// AddrsOf converts addresses.
func AddrsOf(addrs ...netip.Addr) (all []inet.Addr) {
	for _, a := range addrs {
		all = append(all, inet.AddrFrom(a))
	}
	return all
}
