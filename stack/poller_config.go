package stack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// Defaults and limits that Config does not carry.
const (
	connsMaxDefault    = 1024
	connsMaxMax        = 1 << 20
	burstMaxDefault    = 32
	pendingMaxDefault  = 256
	bufShareDefault    = 200
	stallDefaultNs     = 5_000_000_000
	rstPerSecDefault   = 1000
	synMaxDefault      = 1024
	flightRingsDefault = 256
	icmpPerSecDefault  = 10
	ttlDefault         = 64
	controlRingEntries = 256
	timersPerTurnMax   = 256 // connections whose timers are served in one Turn
	// Turns for which timers wait while the device has more frames: as many as a TAP queues
	timersWaitMax  = 24
	retryNs        = 10_000
	awayMin        = 100_000 // ns between two Turns: more than one with much to do takes
	awayLongMin    = 20e6    // ns: what an Upper's timer bounds is longer
	timerPutOffMax = 1e9     // ns: in which a peer that was away, too, answers

	// The most full receive bursts of one Turn, and the most transmit bursts of segments that wait
	// for their turn. A connection gets one ACK a Turn: if many frames wait, one ACK is for up to
	// 256 small or 96 full segments. RFC 9293 section 3.8.6.3 asks for more (SHLD-19, every second
	// segment); a host with receive offload sends as few. The Turn ends when no more frames wait, so
	// an ACK is never held back.
	burstsPerTurnMax = 8

	// The most octets that all senders of a Turn may send: those bursts of 1500-octet frames. More,
	// with larger frames, would leave the second-level cache before the device or the peer reads it.
	turnOctetsMax = 384 << 10

	// A Turn stops receiving after the burst with which it has taken this many octets, and sends
	// ACKs: a sender with a window of a few times this much learns of room before it runs out, and
	// the octets are still in the cache. A burst is at most this many octets of the largest frames,
	// but at least burstMin frames.
	receivedOctetsMax = 96 << 10
	burstMin          = 4

	mtuMin = 576 // RFC 791 section 3.1: every host takes datagrams of this size
)

// Bell lets others than goroutines wake a Poller: threads that run no Go. They leave something,
// then look at Asleep, swap it for 0, and if it was 1 write 8 octets, the number 1, to FD.
type Bell = rouse.Bell

// Config of a Poller; for Open, of all Pollers of a port.
type Config struct {
	Name     string // in errors and metrics
	Queue    pmd.Queue
	Pool     *mem.Pool // the pool Queue was opened with
	Caps     pmd.Caps
	MAC      inet.MAC
	Addr     netip.Prefix // our first address and its on-link prefix, of either family
	Gateway  netip.Addr   // optional; a default route
	MTU      int          // IP packet; default Caps.MTU
	TCP      tcp.Config   // MSS 0: from MTU
	ConnsMax int          // default 1024
	BurstMax int          // default 32
	Core     int          // CPU to pin Run to: OnCPU; 0 or -1: none
	Idle     Idle
	Clock    func() int64 // monotonic ns; nil: the system's
	// OnTurn, if not nil, is called in every Turn on the Poller's goroutine, after delivery and
	// before transmission. An application that polls its CompletionQueues and posts there needs no
	// other core, and what it posts is sent in the same Turn. It returns the amount of work found;
	// after 0, Run may idle. It must not block or wait for this Poller. It is called from the first
	// Turn on, before there are connections, and not after the Turn that ends the Poller.
	OnTurn func() int
	// Bell, if not nil, is how what OnTurn looks at wakes the Poller under IdleInterrupt.
	Bell   *Bell
	Secret [16]byte // keys ISNs, ports, timestamp offsets; zero: from crypto/rand

	// segments one connection may send in one Turn, default 8*BurstMax; its share in octets bounds
	// it too (sched.go)
	SegmentsMax int
	PendingMax  int // frames that wait for the device, default 256, at least 2*BurstMax
	// FlightRings is the number of connections that have a flight record (2 KiB each; package
	// flight), the ones with the latest events: default ConnsMax, at most 256. Negative: none.
	FlightRings int
	SynMax      int // half-open connections of all listeners, default 1024
	// with a full backlog evict the oldest half-open connection instead of sending SYN cookies
	NoSynCookies bool

	// PeerMax is the number of connections that one address (of IPv6, one /64) may open to us; 0: up
	// to ConnsMax. At the limit, a new connection replaces a silent one (Conn.SetSilent) or is
	// refused. The members of a Group share one limit.
	PeerMax int
	// Limits on packet buffers that peers hold (pressure.go).
	// Bufs one connection may have in flight, in percent of those that are free; default 200
	BufShare int
	// while others need Bufs, a connection whose peer is late by this time is reset; default 5 s
	StallNs int64

	// RSTs to segments without a connection, default 1000 (a burst of as many)
	RSTPerSec  int
	TTL        uint8                // of what we send, default 64 (RFC 9293 MUST-49)
	Neighbours inet.NeighbourConfig // zero fields take inet's defaults

	// more addresses; with one of IPv6, a link-local one is added if there is none
	Addrs []netip.Prefix
	// in addition to Gateway; several default routes are several default gateways
	Routes []inet.Route
	// DialPorts are the local ports that Dial chooses from; default 49152 to 65535. Hosts that share
	// an address need disjoint ranges.
	DialPorts PortRange
	// 802.1Q tag of every frame, 1 to 4094; 0: untagged. With Caps.VLAN the device handles it
	VLAN uint16
	// An address is used after duplicate address detection (iphost/claim.go): 4 to 7 s after New for
	// IPv4 (RFC 5227), 1 to 2 s for IPv6 (RFC 4862). Dials of stream and rnic wait for it;
	// AwaitAddrs returns its result.
	QuickDAD   bool // detect duplicates in a third of a second
	NoDAD      bool // use addresses at once; for a link without other hosts
	NoAnnounce bool // send no unsolicited announcements of our addresses
	Discover   bool // take IPv6 routes, prefixes, MTU and hop limit from routers (RFC 4861)
	ICMPPerSec int  // ICMP errors we send, default 10 (a burst of as many; RFC 4443 section 2.4(f))
	// of Pollers that share an address, one for each queue of a port; its secret replaces Secret
	Group      *Group
	Member     int // this Poller's index in Group
	Reassembly inet.ReassemblyConfig
	PathMTU    inet.PathMTUConfig
	// Arena is for Open only: the memory of the pools, of which the device knows; nil: made
	Arena *hugepages.Arena

	ttlGiven bool
}

// firstCPU is CPU 0 in Config.Core, where the zero value pins nothing.
const firstCPU = math.MinInt

// OnCPU is the value of Config.Core that pins a Poller to CPU n; -1: to none. From 1 on it is n
// itself.
func OnCPU(n int) int {
	if n == 0 {
		return firstCPU
	}
	return n
}

// PortRange is TCP ports, both included.
type PortRange struct{ First, Last uint16 }

// complete fills in defaults and checks the Config.
func complete(cfg *Config) error {
	for _, step := range []func(*Config) error{
		(*Config).checkDevice, (*Config).CheckHost, (*Config).completeLimits, (*Config).checkPool,
		(*Config).checkGroup, (*Config).completeSecret,
	} {
		if err := step(cfg); err != nil {
			return fmt.Errorf("stack: poller %q: %w", cfg.Name, err)
		}
	}
	return nil
}

// checkDevice completes and checks what depends on the queue and the port.
func (cfg *Config) checkDevice() error {
	if cfg.Queue == nil || cfg.Pool == nil {
		return errors.New("needs a Queue and the Pool it was opened with")
	}
	if cfg.Idle > IdleInterrupt {
		return fmt.Errorf("Idle %d: want IdleAdaptive to IdleInterrupt", cfg.Idle)
	}
	if cfg.Idle == IdleInterrupt {
		q, can := cfg.Queue.(pmd.Interrupter)
		if can {
			_, can = q.Interrupt()
		}
		switch {
		case !can:
			return errors.New("IdleInterrupt, but its queue has no interrupts")
		case cfg.OnTurn != nil && cfg.Bell == nil:
			return errors.New("IdleInterrupt, but OnTurn needs a Poller that does not sleep, or a Bell")
		}
	}
	if cfg.MAC == (inet.MAC{}) || cfg.MAC[0]&1 != 0 {
		return fmt.Errorf("MAC %v is not a unicast address", cfg.MAC)
	}
	if cfg.Caps.VLAN != 0 && cfg.VLAN != cfg.Caps.VLAN {
		return fmt.Errorf("VLAN %d, but the port's is %d: want the same", cfg.VLAN, cfg.Caps.VLAN)
	}
	if cfg.Caps.VLAN != 0 {
		cfg.VLAN = 0 // the device inserts and removes the tag
	}
	if cfg.MTU == 0 {
		cfg.MTU = cfg.Caps.MTU
	}
	if cfg.MTU < mtuMin || cfg.MTU > math.MaxUint16 || cfg.Caps.MTU != 0 && cfg.MTU > cfg.Caps.MTU {
		return fmt.Errorf("MTU %d: want %d to %d", cfg.MTU, mtuMin, min(cfg.Caps.MTU, math.MaxUint16))
	}
	return nil
}

// completeLimits sets the limits that were left zero, and checks the others.
func (cfg *Config) completeLimits() error {
	if cfg.DialPorts == (PortRange{}) {
		cfg.DialPorts = PortRange{portFirst, portLast}
	}
	setDefault(&cfg.ICMPPerSec, icmpPerSecDefault)
	setDefault(&cfg.TCP.MSS, cfg.MTU-inet.IPv4Len-tcpHeaderLen)
	setDefault(&cfg.ConnsMax, connsMaxDefault)
	setDefault(&cfg.TCP.RecordsMax, recordsMax(cfg.ConnsMax, cfg.Pool.Size()))
	setDefault(&cfg.BurstMax, burstMaxDefault)
	setDefault(&cfg.PendingMax, max(pendingMaxDefault, 2*cfg.BurstMax))
	setDefault(&cfg.RSTPerSec, rstPerSecDefault)
	setDefault(&cfg.SynMax, synMaxDefault)
	setDefault(&cfg.FlightRings, min(cfg.ConnsMax, flightRingsDefault))
	setDefault(&cfg.BufShare, bufShareDefault)
	if cfg.StallNs == 0 {
		cfg.StallNs = stallDefaultNs
	}
	switch cfg.Core { // from here on a CPU's number, or -1
	case 0:
		cfg.Core = -1
	case firstCPU:
		cfg.Core = 0
	}
	cfg.ttlGiven = cfg.TTL != 0
	if cfg.TTL == 0 {
		cfg.TTL = ttlDefault
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock
	}
	return cfg.checkLimits()
}

func (cfg *Config) checkLimits() error {
	if r := cfg.DialPorts; r.First == 0 || r.First > r.Last {
		return fmt.Errorf("DialPorts %d to %d: want the first and the last port", r.First, r.Last)
	}
	if cfg.ConnsMax < 1 || cfg.ConnsMax > connsMaxMax || cfg.BurstMax < 1 || cfg.SegmentsMax < 0 {
		return fmt.Errorf("ConnsMax %d, BurstMax %d, SegmentsMax %d: want at least 1 each (SegmentsMax "+
			"0: default), and at most %d connections",
			cfg.ConnsMax, cfg.BurstMax, cfg.SegmentsMax, connsMaxMax)
	}
	if cfg.BufShare < 1 || cfg.BufShare > bufShareMax || cfg.StallNs < 0 {
		return fmt.Errorf("BufShare %d, StallNs %d: want 1 to %d percent, and no negative time",
			cfg.BufShare, cfg.StallNs, bufShareMax)
	}
	if cfg.PeerMax < 0 || cfg.PeerMax > cfg.ConnsMax {
		return fmt.Errorf("PeerMax %d: want 1 to ConnsMax (%d), or 0 for no limit", cfg.PeerMax,
			cfg.ConnsMax)
	}
	if cfg.FlightRings > flight.RingsMax {
		return fmt.Errorf("FlightRings %d: want at most %d", cfg.FlightRings, flight.RingsMax)
	}
	if cfg.SynMax < 1 || cfg.SynMax > connsMaxMax {
		return fmt.Errorf("SynMax %d: want 1 to %d", cfg.SynMax, connsMaxMax)
	}
	if cfg.PendingMax < 2*cfg.BurstMax {
		return fmt.Errorf("PendingMax %d is less than two bursts of %d", cfg.PendingMax, cfg.BurstMax)
	}
	if cfg.TCP.MSS > cfg.MTU-inet.IPv4Len-tcpHeaderLen {
		return fmt.Errorf("MSS %d does not fit MTU %d: at most %d", cfg.TCP.MSS, cfg.MTU,
			cfg.MTU-inet.IPv4Len-tcpHeaderLen)
	}
	return nil
}

// checkPool checks that a segment of MSS octets fits into a Buf.
func (cfg *Config) checkPool() error {
	if h := cfg.Pool.Headroom(); h < headersMax {
		return fmt.Errorf("pool headroom %d: headers need %d", h, headersMax)
	}
	if need := cfg.Pool.Headroom() + cfg.TCP.MSS; cfg.Pool.Stride() < need {
		return fmt.Errorf("pool stride %d: MSS %d needs %d", cfg.Pool.Stride(), cfg.TCP.MSS, need)
	}
	if need := cfg.Pool.Headroom() + inet.ListenerRoom; cfg.Pool.Stride() < need {
		return fmt.Errorf("pool stride %d: multicast listener discovery needs %d",
			cfg.Pool.Stride(), need)
	}
	return nil
}

func (cfg *Config) checkGroup() error {
	if cfg.Group == nil {
		return nil
	}
	return cfg.Group.check(cfg)
}

func (cfg *Config) completeSecret() error {
	if cfg.Secret != ([16]byte{}) {
		return nil
	}
	if _, err := rand.Read(cfg.Secret[:]); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return nil
}

// recordsMax is tcp.Config.RecordsMax where many connections share few Bufs, or 0 for tcp's
// default. Each record of octets has a Buf, so more than a run of records for each Buf is of no
// use; the rest of 64 Ki is for SYNs and FINs.
func recordsMax(conns, bufs int) int {
	const few = 64 << 10
	if conns <= few {
		return 0
	}
	return max(few, min(conns, tcp.RecordsRun*bufs))
}

func setDefault(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

// epoch makes Now monotonic within a process, and greater in a later process (RFC 6528).
var epoch = time.Now()

func systemClock() int64 { return epoch.UnixNano() + int64(time.Since(epoch)) }
