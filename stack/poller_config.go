package stack

import (
	"crypto/rand"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/flight"
	"github.com/rnicd/rnicd/inet"
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
	timersWaitMax      = 24  // Turns for which timers wait while the device has more frames: as many as a TAP queues
	retryNs            = 10_000
	awayMin            = 100_000 // ns between two Turns: more than one with much to do takes

	// So many receive bursts are taken in one Turn while full ones come, and so many transmit
	// bursts are shared by its few senders. A connection is answered once a Turn: where frames wait
	// already, one ACK stands for up to 256 segments, of full ones for 96. That is fewer ACKs than RFC 9293 section
	// 3.8.6.3 asks for (SHLD-19, every second one), and what a host with receive offload does. When
	// no more frames wait the Turn ends, so no ACK waits for anything.
	burstsPerTurnMax = 8

	// What the senders of a Turn share, in octets: as much as those bursts are of Ethernet's
	// frames. Of larger frames the second-level cache would no longer hold it when the other end,
	// or the device, comes to read it.
	turnOctetsMax = 384 << 10

	// What a Turn takes from the device, in octets, to the end of the burst. Then it acknowledges: a
	// sender whose window is a few times this much hears of room while it still has some, and what
	// was copied or placed is in the cache. A burst is no more than this of the largest frames,
	// burstMin at least.
	receivedOctetsMax = 96 << 10
	burstMin          = 4

	mtuMin = 576 // RFC 791 section 3.1: every host takes datagrams of this size
)

// Config of a Poller.
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
	Core     int          // CPU to pin Run to; -1 none
	Idle     Idle
	Clock    func() int64 // monotonic ns; nil: the system's
	// OnTurn, if not nil, is called in every Turn, on the Poller's goroutine: when what came in has
	// been delivered, and before anything is sent. An application that looks at its memory, polls
	// its CompletionQueues and posts there runs to completion: one core does all its work, and what
	// it posts leaves in the same Turn. It returns how much work it found, and with 0 Run may idle.
	// It must not block, nor wait for anything this Poller does; it begins with the first Turn,
	// before there is a connection, and is not called after the Turn that ends the Poller.
	OnTurn func() int
	// Bell, if not nil, is how what OnTurn looks at wakes the Poller under IdleInterrupt.
	Bell   *Bell
	Secret [16]byte // keys ISNs, ports, timestamp offsets; zero: from crypto/rand

	SegmentsMax int // segments one connection may send in one Turn, default BurstMax, and more while few want to send
	PendingMax  int // frames that wait for the device, default 256, at least 2*BurstMax
	// FlightRings is how many connections, those with events last, have a flight record (2 KiB each;
	// package flight): default ConnsMax, at most 256. Negative: none.
	FlightRings  int
	SynMax       int  // half-open connections of all listeners, default 1024
	NoSynCookies bool // beyond a backlog the oldest half-open connection gives way, instead of SYN cookies

	// PeerMax is how many connections one address (of IPv6, one /64) may open to us; 0: no limit
	// but ConnsMax. At the limit its silent ones give way to its next (Conn.SetSilent), and without
	// any it gets no more. Of a Group it is one limit for all members.
	PeerMax int
	// What peers may keep of ours (pressure.go).
	BufShare int   // Bufs one connection may have in flight, in percent of those that are free; default 200
	StallNs  int64 // so long a peer may take for what is in flight before it is ended where others wait; default 5 s

	RSTPerSec  int                  // RSTs to segments without a connection, default 1000 (a burst of as many)
	TTL        uint8                // of what we send, default 64 (RFC 9293 MUST-49)
	Neighbours inet.NeighbourConfig // zero fields take inet's defaults

	Addrs  []netip.Prefix // more addresses; with one of IPv6, a link-local one is added if there is none
	Routes []inet.Route   // besides Gateway; several default routes are several default gateways
	// DialPorts are the local ports of connections that are dialled without one; default 49152 to 65535. Hosts that share an
	// address have each their own.
	DialPorts PortRange
	VLAN      uint16 // 802.1Q tag of every frame, 1 to 4094; 0: untagged. The device's affair where Caps.VLAN says so
	// An address is used once it is known that no other host has it (host_claim.go): 4 to 7 s after
	// New (RFC 5227), one of IPv6 after 1 to 2 (RFC 4862). Dials of stream and rnic wait for it,
	// AwaitAddrs says what came of it.
	QuickDAD   bool   // find out in a third of a second
	NoDAD      bool   // use addresses at once; for a link with nobody else on it
	NoAnnounce bool   // do not tell the link unasked where our addresses are
	Discover   bool   // take IPv6 routes, prefixes, MTU and hop limit from routers (RFC 4861)
	ICMPPerSec int    // ICMP errors we send, default 10 (a burst of as many; RFC 4443 section 2.4(f))
	Group      *Group // of Pollers that share an address, one for each queue of a port; its secret goes before Secret
	Member     int    // which of them this is
	Reassembly inet.ReassemblyConfig
	PathMTU    inet.PathMTUConfig

	ttlGiven bool
}

// PortRange is TCP ports, both included.
type PortRange struct{ First, Last uint16 }

func (r PortRange) count() uint32 { return uint32(r.Last-r.First) + 1 }

// complete fills in defaults and says what is wrong.
func complete(cfg *Config) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("stack: poller %q: "+format, append([]any{cfg.Name}, args...)...)
	}
	if cfg.Queue == nil || cfg.Pool == nil {
		return bad("needs a Queue and the Pool it was opened with")
	}
	if cfg.Idle == IdleInterrupt {
		q, can := cfg.Queue.(pmd.Interrupter)
		if can {
			_, can = q.Interrupt()
		}
		switch {
		case !can:
			return bad("IdleInterrupt, and its queue has no interrupts")
		case cfg.OnTurn != nil && cfg.Bell == nil:
			return bad("IdleInterrupt, and what OnTurn looks at interrupts nobody")
		}
	}
	if cfg.MAC == (inet.MAC{}) || cfg.MAC[0]&1 != 0 {
		return bad("MAC %v is not a unicast address", cfg.MAC)
	}
	if cfg.Caps.VLAN != 0 && cfg.VLAN != cfg.Caps.VLAN {
		return bad("VLAN %d, and the port's own is %d: want the same", cfg.VLAN, cfg.Caps.VLAN)
	}
	if cfg.Caps.VLAN != 0 {
		cfg.VLAN = 0 // nothing for us to do: the device puts its tag in and takes it off
	}
	if cfg.DialPorts == (PortRange{}) {
		cfg.DialPorts = PortRange{portFirst, portLast}
	}
	if r := cfg.DialPorts; r.First == 0 || r.First > r.Last {
		return bad("DialPorts %d to %d: want the first and the last of them", r.First, r.Last)
	}
	if cfg.MTU == 0 {
		cfg.MTU = cfg.Caps.MTU
	}
	if cfg.MTU < mtuMin || cfg.MTU > math.MaxUint16 || cfg.Caps.MTU != 0 && cfg.MTU > cfg.Caps.MTU {
		return bad("MTU %d: want %d to %d", cfg.MTU, mtuMin, min(cfg.Caps.MTU, math.MaxUint16))
	}
	if err := cfg.checkHost(); err != nil {
		return bad("%w", err)
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
	cfg.ttlGiven = cfg.TTL != 0
	if cfg.TTL == 0 {
		cfg.TTL = ttlDefault
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock
	}
	if cfg.ConnsMax < 1 || cfg.ConnsMax > connsMaxMax || cfg.BurstMax < 1 || cfg.SegmentsMax < 0 {
		return bad("ConnsMax %d, BurstMax %d, SegmentsMax %d: want at least 1 each (SegmentsMax 0: default), and at most %d connections",
			cfg.ConnsMax, cfg.BurstMax, cfg.SegmentsMax, connsMaxMax)
	}
	if cfg.BufShare < 1 || cfg.BufShare > bufShareMax || cfg.StallNs < 0 {
		return bad("BufShare %d, StallNs %d: want 1 to %d percent, and no negative time", cfg.BufShare, cfg.StallNs, bufShareMax)
	}
	if cfg.PeerMax < 0 || cfg.PeerMax > cfg.ConnsMax {
		return bad("PeerMax %d: want 1 to ConnsMax (%d), or 0 for no limit", cfg.PeerMax, cfg.ConnsMax)
	}
	if cfg.FlightRings > flight.RingsMax {
		return bad("FlightRings %d: want at most %d", cfg.FlightRings, flight.RingsMax)
	}
	if cfg.SynMax < 1 || cfg.SynMax > connsMaxMax {
		return bad("SynMax %d: want 1 to %d", cfg.SynMax, connsMaxMax)
	}
	if cfg.PendingMax < 2*cfg.BurstMax {
		return bad("PendingMax %d is less than two bursts of %d", cfg.PendingMax, cfg.BurstMax)
	}
	if cfg.TCP.MSS > cfg.MTU-inet.IPv4Len-tcpHeaderLen {
		return bad("MSS %d does not fit MTU %d: at most %d", cfg.TCP.MSS, cfg.MTU, cfg.MTU-inet.IPv4Len-tcpHeaderLen)
	}
	if h := cfg.Pool.Headroom(); h < headersMax {
		return bad("pool headroom %d: headers need %d", h, headersMax)
	}
	if need := cfg.Pool.Headroom() + cfg.TCP.MSS; cfg.Pool.Stride() < need {
		return bad("pool stride %d: MSS %d needs %d", cfg.Pool.Stride(), cfg.TCP.MSS, need)
	}
	if cfg.Group != nil {
		if err := cfg.Group.check(cfg); err != nil {
			return bad("%w", err)
		}
	}
	if cfg.Secret == ([16]byte{}) {
		if _, err := rand.Read(cfg.Secret[:]); err != nil {
			return bad("secret: %w", err)
		}
	}
	return nil
}

// recordsMax is tcp.Config.RecordsMax where many connections share few Bufs; 0 where tcp's default
// does. A record of octets has a Buf: a run of records for each Buf is as much as they can use, and
// what is left of 64 Ki is for SYNs and FINs.
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

// epoch makes Now grow from one process to the next, as the clock of RFC 6528 should, and be
// monotonic within one.
var epoch = time.Now()

func systemClock() int64 { return epoch.UnixNano() + int64(time.Since(epoch)) }
