package iphost

import (
	"math"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
)

const second = int64(1_000_000_000)

// never stands for the time of what has not happened.
const never = math.MinInt64 / 2

// Config of a Host.
type Config struct {
	MAC      inet.MAC
	Addrs    []netip.Prefix // ours, with their on-link prefixes; the first one stays
	Routes   []inet.Route   // through gateways
	VLAN     uint16         // tag of what we send; 0: untagged
	MTU      int            // largest IP packet
	TTL      uint8          // of what we send
	KeepTTL  bool           // whatever routers say
	QuickDAD bool           // detect duplicates in a third of a second
	NoDAD    bool           // use addresses at once

	NoAnnounce bool // send no unsolicited announcements
	Discover   bool // take IPv6 routes, prefixes, MTU and hop limit from routers
	ErrorsMax  int  // ICMP errors we send in a second

	Shared *Shared // with other Hosts; nil: with none
	Member int     // of Shared; 0 speaks for all
	// Random is a keyed hash of up to 24 octets, which others must not be able to guess.
	Random     func(octets []byte) uint64
	Seed       uint64 // of the multicast listener's times
	Reassembly inet.ReassemblyConfig
	PathMTU    inet.PathMTUConfig
}

// Link is how a Host sends.
type Link interface {
	// Room is room for one frame of the MTU and its headers, until the next Send. nil: there is none
	// now, which the Link counts.
	Room() []byte
	// Send sends the first n octets of Room; 0: nothing. False: they were not taken, and are gone.
	Send(n int) bool
	// SendBy is Send of a packet that goes by way of hop, whose MAC address the Link finds out.
	SendBy(n int, hop inet.Addr)
}

// Neighbours is the table that a Host feeds: an *inet.Neighbours, whatever its frames are.
type Neighbours interface {
	Input(now int64, a *inet.ARP, ip inet.Addr, mac inet.MAC) (inet.ARP, bool, inet.Drop)
	Solicit(now int64, ip inet.Addr, mac inet.MAC)
	Advertise(now int64, nd *inet.ND)
	SetTimes(reachableNs, retryNs int64)
	RetransNs() int64
}

// News is what calls have changed that the caller has to act on.
type News uint8

const (
	NeighbourLearned News = 1 << iota // frames may have become ready in the Neighbours
	AddrChanged                       // the state of an address, or it was removed
	AddrGivenUp                       // with AddrChanged: for the other Hosts of Shared to Heed
	RoutesChanged                     // the next hops of all connections are to be looked up again
)

// Counters of a Host.
type Counters struct {
	ARPRequests, ARPReplies uint64
	ARPProbes               uint64 // that asked whether another host has an address of ours
	NDRequests, NDReplies   uint64
	RouterAdverts           uint64
	EchoReplies             uint64
	ErrorsSent              uint64 // ICMP errors
	ErrorsLimited           uint64 // that were not sent, beyond Config.ErrorsMax
	NoSource                uint64 // messages that no address of ours, or no route, could carry
	Fragments, Reassembled  uint64
	ReassemblyTimeouts      uint64
	ReassemblyEvicted       uint64

	AddrDuplicate   uint64 // addresses of ours that another host has
	AddrConflicts   uint64 // packets of other hosts that claim an address of ours
	AddrDefended    uint64 // announcements that answered one
	DefenceLimited  uint64 // that were not sent, within DEFEND_INTERVAL of another
	Announcements   uint64
	LinkUps         uint64
	AnnounceLimited uint64 // LinkUps for which another, a second away at most, stands
}

// Host is one end of a link.
type Host struct {
	cfg        Config
	link       Link
	neighbours Neighbours
	n          Counters
	news       News
	dueAt      int64 // when Expire has something to do

	addrs []Address
	ip6   bool // there is an IPv6 address

	hopLimit6 uint8
	mtu6      int
	routes    *inet.Routes
	reroutes  limiter
	paths     *inet.PathMTU
	pathsSeen uint32 // see PathsChanged

	fragments *inet.Reassembly
	ident     *inet.Identification
	errors    inet.Bucket

	rsAt   int64 // next Router Solicitation; math.MaxInt64: none
	rsSent int

	draws     uint64 // of random times
	quietTo   int64  // until then nothing is announced
	linkUps   limiter
	conflicts int    // addresses found to be another's
	claimedAt int64  // when the checks of the newest address began
	goneSeen  uint32 // Shared.gone, as far as it was heeded

	groups    []inet.Addr    // of Join
	listener  *inet.Listener // of IPv6
	listener4 *inet.Listener
	listenAt  int64 // not before: there was no room

	arp inet.ARP // the message in hand
	nd  inet.ND
	mld inet.MLD
	err inet.ICMPError
}

// New makes a Host and all memory it will use. cfg was checked.
func New(cfg Config, now int64, link Link, neighbours Neighbours) *Host {
	h := &Host{
		cfg: cfg, link: link, neighbours: neighbours, hopLimit6: cfg.TTL, mtu6: cfg.MTU,
		routes: inet.NewRoutes(), reroutes: newLimiter(), paths: inet.NewPathMTU(cfg.PathMTU),
		fragments: inet.NewReassembly(cfg.Reassembly), ident: inet.NewIdentification(),
		errors: inet.NewBucket(now, cfg.ErrorsMax), rsAt: math.MaxInt64, quietTo: never,
		linkUps: newLimiter(), claimedAt: never, groups: make([]inet.Addr, 0, GroupsMax),
		listener: inet.NewListener(cfg.Seed, false), listener4: inet.NewListener(cfg.Seed, true),
		listenAt: never,
	}
	for _, prefix := range cfg.Addrs {
		h.add(now, prefix)
	}
	for _, r := range cfg.Routes {
		h.routes.Add(r)
	}
	h.dueAt = now
	return h
}

// Counters are what h has done.
func (h *Host) Counters() *Counters { return &h.n }

// Listener counts multicast listener discovery, and IGMP.
func (h *Host) Listener(now int64) inet.ListenerStats {
	all := h.listener.Stats(now)
	all.Add(h.listener4.Stats(now))
	return all
}

// HasNews says whether TakeNews has something to tell.
func (h *Host) HasNews() bool { return h.news != 0 }

// TakeNews is what has changed since the last time.
func (h *Host) TakeNews() News {
	news := h.news
	h.news = 0
	return news
}

// Deadline is when Expire has something to do.
func (h *Host) Deadline() int64 { return h.dueAt }

// Expire does what is due, and returns how much that was.
func (h *Host) Expire(now int64) (work int) {
	if h.routes.Expire(now) {
		work++
		h.reroutes.want(now, rerouteNs)
	}
	if h.reroutes.due(now) {
		work++
		h.news |= RoutesChanged
	}
	for _, ok := h.paths.Expire(now); ok; _, ok = h.paths.Expire(now) {
		work++
		h.pathsSeen++ // the estimate is old: the link's MTU is tried again (RFC 1191 section 6.3)
	}
	work += h.expireFragments(now)
	work += h.stepAddrs(now)
	work += h.tellListening(now)
	if h.rsAt <= now {
		work++
		h.solicitRouters(now)
	}
	h.schedule(now)
	return work
}
