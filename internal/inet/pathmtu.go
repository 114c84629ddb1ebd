package inet

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// IPv4PathMTUMin is the least path MTU a router is believed for IPv4. RFC 1191 would allow 68,
// which only an attacker says (RFC 5927, 7); a link of 552 carries any datagram a host may count
// on.
const IPv4PathMTUMin = 552

// PathMTUConfig bounds a PathMTU. Zero fields take the default.
type PathMTUConfig struct {
	EntriesMax int // destinations, default 256, a multiple of 4
	// of an estimate, until the link's is tried again: default 10 min, not less than 5 (RFC 1191, 6.3)
	AgeNs int64
}

func (c PathMTUConfig) withDefaults() PathMTUConfig {
	const minute = 60_000_000_000
	if c.EntriesMax == 0 {
		c.EntriesMax = 256
	}
	if c.AgeNs == 0 {
		c.AgeNs = 10 * minute
	}
	if c.EntriesMax < pathWays || c.EntriesMax > 1<<16 || c.EntriesMax&(c.EntriesMax-1) != 0 ||
		c.AgeNs < 5*minute {
		panic("inet: PathMTUConfig wants EntriesMax a power of two from 4 to 65536, AgeNs at least 5 min")
	}
	return c
}

const pathWays = 4

// PathMTU remembers, per destination, a path MTU below the link's (RFC 1191, 6.2; RFC 8201, 5.2).
// Nothing ever raises an entry; it ages out, and the size of the link is tried again. A full set of
// four gives up its oldest. Estimates end at whole seconds: however many a peer causes, and at
// whatever times, Expire walks all entries once a second at most. It belongs to one goroutine and
// allocates only when made.
type PathMTU struct {
	cfg     PathMTUConfig
	entries []pathEntry
	key     [2]uint64 // secret, so that no host can aim at one set
	n       int
	next    int64  // no entry ends earlier
	hand    int    // where the walk of Expire goes on
	least   int64  // no entry ends earlier of those that it has passed, or that came meanwhile
	looked  uint64 // entries that Expire has walked over
}

// pathTickNs is what the ends of estimates are multiples of.
const pathTickNs = 1_000_000_000

type pathEntry struct {
	dst     Addr
	expires int64
	mtu     int // 0: free
}

// NewPathMTU makes one with all memory it will use.
func NewPathMTU(cfg PathMTUConfig) *PathMTU {
	cfg = cfg.withDefaults()
	return &PathMTU{
		cfg: cfg, entries: make([]pathEntry, cfg.EntriesMax),
		key: [2]uint64{rand.Uint64(), rand.Uint64()}, next: math.MaxInt64,
	}
}

// set is the four entries where dst may stand.
func (c *PathMTU) set(dst *Addr) []pathEntry {
	hi, lo := bits.Mul64(dst.high()^c.key[0], dst.low()^c.key[1])
	i := int(uint32(hi^lo)) & (len(c.entries) - 1) &^ (pathWays - 1)
	return c.entries[i : i+pathWays]
}

// Get is the path MTU to dst, link when nothing less is known.
func (c *PathMTU) Get(dst Addr, link int) int {
	if c.n == 0 {
		return link
	}
	for i := range c.set(&dst) {
		if e := &c.set(&dst)[i]; e.mtu != 0 && e.dst == dst {
			return min(e.mtu, link)
		}
	}
	return link
}

// Lower takes the MTU that a router said, of a report the transport has found to be about a packet
// of its own (RFC 8899, 3). What makes sense of it is Believed's. It changes nothing when that is
// not below what is known; lowered says.
func (c *PathMTU) Lower(now int64, dst Addr, mtu, link int) (lowered bool) {
	if mtu >= c.Get(dst, link) {
		return false
	}
	set := c.set(&dst)
	victim := &set[0]
	for i := range set {
		e := &set[i]
		if e.mtu != 0 && e.dst == dst {
			victim = e
			break
		}
		if victim.mtu != 0 && (e.mtu == 0 || e.expires < victim.expires) {
			victim = e
		}
	}
	if victim.mtu == 0 {
		c.n++
	}
	expires := (now + c.cfg.AgeNs + pathTickNs - 1) / pathTickNs * pathTickNs
	*victim = pathEntry{dst: dst, mtu: mtu, expires: expires}
	c.next, c.least = min(c.next, expires), min(c.least, expires)
	return true
}

// Deadline is when Expire is next due (math.MaxInt64: never).
func (c *PathMTU) Deadline() int64 { return c.next }

// Expire forgets one destination whose estimate is old; ok is false when there is none. Call it
// until then: the next call goes on where this one found one.
func (c *PathMTU) Expire(now int64) (dst Addr, ok bool) {
	if c.next > now {
		return Addr{}, false
	}
	if c.hand == 0 {
		c.least = math.MaxInt64
	}
	for ; c.hand < len(c.entries); c.hand++ {
		c.looked++
		e := &c.entries[c.hand]
		switch {
		case e.mtu == 0:
		case e.expires <= now:
			e.mtu = 0
			c.n--
			c.hand++
			return e.dst, true
		default:
			c.least = min(c.least, e.expires)
		}
	}
	c.next, c.hand = c.least, 0
	return Addr{}, false
}

// plateaus are the MTUs in common use, greatest first (RFC 1191, 7.1; below 552 we do not go).
var plateaus = [...]int{32000, 17914, 8166, 4352, 2002, 1492, 1006, IPv4PathMTUMin}

// Believed is the path MTU that a Fragmentation Needed or Packet Too Big e leads to; 0: it is to be
// discarded. A router older than RFC 1191 says 0: then the next plateau below the packet's length
// (RFC 1191, 5; its 7.1 warns of BSD hosts that add the header's length to it, which the plateaus
// absorb). An IPv6 router that says less than 1280 is not believed (RFC 8201, 4).
func (e *ICMPError) Believed() int {
	if !e.Src.Is4() {
		if e.Type != ICMP6TooBig || e.MTU < IPv6MTUMin || e.MTU > math.MaxUint16 {
			return 0
		}
		return int(e.MTU)
	}
	switch {
	case e.Type != ICMPUnreachable || e.Code != ICMPFragNeeded:
		return 0
	case e.MTU != 0:
		return max(int(e.MTU), IPv4PathMTUMin)
	}
	for _, mtu := range plateaus {
		if mtu < e.TotalLen {
			return mtu
		}
	}
	return IPv4PathMTUMin
}
