package inet

import (
	"math"
	"math/rand/v2"
)

// NeighbourConfig bounds a table. Zero fields take the default.
type NeighbourConfig struct {
	EntriesMax int // default 1024
	QueueMax   int // frames waiting per unresolved entry, default 16
	// frames inside the table at any time, default 256: no more Bufs can be stuck here
	FramesMax   int
	ReachableNs int64 // default 30 s: then stale, refreshed by a unicast request
	RetryNs     int64 // default 1 s between requests
	// IPv4: a reachable station is asked before another takes its address (neighbour_arp.go)
	Doubt bool
	Seed  uint64 // of the random lengths of confirmations; default: drawn
	// RetriesMax is how often an unanswered request is repeated; then the neighbour is unreachable:
	// queued frames are dropped, the entry is removed. Default 3, for IPv6 2
	// (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT); RFC 7048 allows more.
	RetriesMax int
}

func (c NeighbourConfig) withDefaults() NeighbourConfig {
	const second = 1_000_000_000
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.EntriesMax, 1024)
	set(&c.QueueMax, 16)
	set(&c.FramesMax, 256)
	if c.ReachableNs == 0 {
		c.ReachableNs = 30 * second
	}
	if c.RetryNs == 0 {
		c.RetryNs = second // RFC 1122, 2.3.2.1: at most one request per second and destination
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	switch {
	case c.EntriesMax < 1 || c.EntriesMax > 1<<20:
		panic("inet: NeighbourConfig.EntriesMax must be 1 to 1048576")
	case c.QueueMax < 1 || c.QueueMax > math.MaxUint16:
		panic("inet: NeighbourConfig.QueueMax must be 1 to 65535")
	case c.FramesMax < 1 || c.FramesMax > 1<<20:
		panic("inet: NeighbourConfig.FramesMax must be 1 to 1048576")
	case c.RetriesMax < 0 || c.RetriesMax > 100:
		panic("inet: NeighbourConfig.RetriesMax must be 0 (default) to 100")
	case c.RetryNs < 0 || c.ReachableNs < c.RetryNs:
		panic("inet: NeighbourConfig wants 0 <= RetryNs <= ReachableNs")
	}
	return c
}

// NeighbourStats counts what a table did; Entries and Frames are what it holds now.
type NeighbourStats struct {
	Entries, Frames int
	Created         uint64
	// no entry made: the table is full of entries in use, or the address is no station's
	Refused     uint64
	Evicted     uint64 // an idle entry made room
	Expired     uint64 // a stale, unused entry ended
	Unreachable uint64 // an entry was given up after RetriesMax
	// another station claimed a known address and was not believed, or not yet (NeighbourConfig.Doubt)
	Doubted    uint64
	Moved      uint64 // a known address changed its MAC: a new card, a takeover, or spoofing
	Displaced  uint64 // the oldest frame of a full queue went to TakeDropped
	FramesFull uint64 // a frame was refused as FramesMax are held
}

// neighbourState of an entry. "Used" means that Lookup found it since it was last confirmed. Learn
// leads to Reachable from everywhere; from nothing only with create.
//
//	           Lookup: ask all               Learn: frames to Take
//	(nothing) ----------------> Incomplete -------------------------> Reachable <---------+
//	 ^  ^  ^                        |                                  |     |            |
//	 |  |  |  1+RetriesMax requests |                 ReachableNs old, |     | old, used  |
//	 |  |  +------------------------+                 not used         |     |            |
//	 |  |     frames to TakeDropped                                    v     v            |
//	 |  +---------------------------------------------------------- Stale -> Probing -----+
//	 |        another ReachableNs not used                         Lookup       |   Learn
//	 +--------------------------------------------------------------------------+
//	          1+RetriesMax unanswered unicast requests
//
// Requests are RetryNs apart. From Stale and Probing, Lookup gives the MAC as from Reachable.
//
// IPv6 differs as RFC 4861, 7.3 says: old entries become Stale, used or not; Lookup leads from
// Stale to Delay, and only after that to Probing; three requests are sent and no fourth. Confirm
// leads to Reachable, Suspect to Probing, from all that have a MAC, of either family
// (neighbour_nd.go).
type neighbourState uint8

const (
	neighbourIncomplete neighbourState = iota // MAC unknown, frames wait
	neighbourReachable                        // confirmed within ReachableNs
	neighbourStale                            // old and idle
	neighbourProbing                          // old, used, being asked
	// IPv6: old, used, the transport has delayNs to confirm it
	neighbourDelay
)

// neverUsed stands in neighbour.usedNs of an entry that no Lookup has found.
const neverUsed = math.MinInt64

// Neighbours is the cache of ARP and neighbour discovery with its resolution queue. T is the
// caller's frame handle (mem.Buf). It never does I/O: Lookup queues, Tick says what to ask, Learn
// gives back what waited. Frames given to it are its own until Take or TakeDropped hands them back,
// exactly once each. It allocates only when made and belongs to one goroutine. now is in
// nanoseconds of any clock that does not go back.
//
// A full table makes room only by giving up the idle: of up to evictScanMax entries after the last
// victim it takes the first that no Lookup ever found, else the Stale one longest without a Lookup.
// Entries that are unresolved or being asked for stay until answered or given up. Without a victim
// the newcomer is refused and counted. A flood of requests from invented senders therefore wears
// out its own entries and never those that carry traffic; at worst, when it also makes us send to
// them, it keeps newcomers out until its entries are stale or given up.
type Neighbours[T any] struct {
	cfg    NeighbourConfig
	table  neighbourTable
	frames frameStore[T]
	stats  NeighbourStats
	lost   []Addr // for TakeLost; beyond EntriesMax they go untold
	rng    uint64 // xorshift64, for times only

	reachable6Ns, retry6Ns int64
}

// NewNeighbours makes a table with all the memory it will ever have. A limit without sense is the
// programmer's: panic.
func NewNeighbours[T any](cfg NeighbourConfig) *Neighbours[T] {
	cfg = cfg.withDefaults()
	n := &Neighbours[T]{
		cfg: cfg, lost: make([]Addr, 0, cfg.EntriesMax), rng: cfg.Seed | 1, reachable6Ns: cfg.ReachableNs,
		retry6Ns: cfg.RetryNs,
	}
	n.table.init(cfg.EntriesMax)
	n.frames.init(cfg.FramesMax)
	return n
}

// Lookup returns the MAC when known; frame then stays the caller's. Else frame is queued (queued =
// true), or, when the table is full or holds FramesMax frames, not, and the caller drops it. A full
// queue of one entry takes the new frame and hands its oldest to TakeDropped, as the latest is the
// one to keep (RFC 1122, 2.3.2.2). ask is true when a broadcast request should be sent now; later
// ones, and unicast ones, are Tick's.
func (n *Neighbours[T]) Lookup(now int64, ip Addr, frame T) (mac MAC, known, queued, ask bool) {
	i := n.table.find(&ip)
	if i >= 0 {
		e := &n.table.entries[i]
		e.usedNs = now
		if e.state == neighbourReachable || e.state >= neighbourProbing {
			return e.mac, true, false, false
		}
	}
	return n.lookupSlow(now, ip, i, frame)
}

// lookupSlow is Lookup of what is neither reachable nor being probed. i is the entry or negative.
func (n *Neighbours[T]) lookupSlow(now int64, ip Addr, i int32,
	frame T) (mac MAC, known, queued, ask bool) {
	if i < 0 {
		if i = n.insert(ip); i < 0 {
			return MAC{}, false, false, false
		}
		e := &n.table.entries[i]
		e.usedNs = now
		e.asks = 1
		n.table.setTimer(i, now+n.retry(&ip))
		return MAC{}, false, n.enqueue(e, frame), true
	}
	e := &n.table.entries[i]
	if e.state == neighbourStale {
		e.state = neighbourProbing
		if !ip.Is4() {
			e.state = neighbourDelay
			now += delayNs
		}
		n.table.setTimer(i, now)
		return e.mac, true, false, false
	}
	return MAC{}, false, n.enqueue(e, frame), false
}

// Knows says whether the MAC of ip is known, so that a frame leaves at once. full: it is not, and
// Lookup would not queue another frame without dropping one.
func (n *Neighbours[T]) Knows(ip *Addr) (known, full bool) {
	i := n.table.find(ip)
	if i >= 0 && n.table.entries[i].state != neighbourIncomplete {
		return true, false
	}
	return false, n.frames.free.count == 0 ||
		i >= 0 && int(n.table.entries[i].waiting.count) >= n.cfg.QueueMax
}

// Learn records ip at mac. An existing entry is always updated, whatever told us (RFC 826: the
// merge); a new one is made only with create, which is for the sender of a request to us. Frames
// that waited become ready for Take, in order. A mac or ip that cannot be one station's is passed
// over.
func (n *Neighbours[T]) Learn(now int64, ip Addr, mac MAC, create bool) {
	if mac.IsGroup() || mac.IsZero() || !ip.IsStation() {
		return
	}
	i := n.table.find(&ip)
	if i < 0 {
		if !create {
			return
		}
		if i = n.insert(ip); i < 0 {
			return
		}
	}
	e := &n.table.entries[i]
	if e.state != neighbourIncomplete && e.mac != mac {
		if n.cfg.Doubt && ip.Is4() && n.doubt(now, i) {
			n.stats.Doubted++
			return
		}
		n.stats.Moved++
	}
	if e.waiting.count > 0 {
		e.usedNs = now
		n.frames.release(&e.waiting, mac)
	}
	e.mac = mac
	e.state = neighbourReachable
	e.asks = 0
	e.confirmedNs = now
	n.table.setTimer(i, now+n.reachable(&ip))
}

// Take returns the next frame whose neighbour has become known (ok) with its MAC.
func (n *Neighbours[T]) Take() (frame T, mac MAC, ok bool) { return n.frames.take(&n.frames.ready) }

// TakeDropped returns the next frame whose neighbour was given up, or that a later one displaced.
// Until it is called such frames count against FramesMax, so drain it whenever Tick was due.
func (n *Neighbours[T]) TakeDropped() (frame T, ok bool) {
	frame, _, ok = n.frames.take(&n.frames.dropped)
	return frame, ok
}

// Deadline is when Tick is next due (math.MaxInt64: never).
func (n *Neighbours[T]) Deadline() int64 { return n.table.deadline() }

// Tick expires entries; each call returns one address to ask for (unicast to mac unless it is
// Broadcast), until ok is false. However late it comes, an address is asked for once, not once per
// interval missed.
func (n *Neighbours[T]) Tick(now int64) (ip Addr, mac MAC, ok bool) {
	for n.table.deadline() <= now {
		i := n.table.timers[0].entry
		e := &n.table.entries[i]
		switch e.state {
		case neighbourReachable:
			if e.usedNs < e.confirmedNs || !e.ip.Is4() {
				e.state = neighbourStale
				n.table.setTimer(i, now+n.cfg.ReachableNs)
				continue
			}
			e.state = neighbourProbing
		case neighbourStale:
			if e.usedNs > now-n.cfg.ReachableNs { // lately used: of IPv6, before it became Stale
				n.table.setTimer(i, now+n.cfg.ReachableNs)
				continue
			}
			n.stats.Expired++
			n.remove(i)
			continue
		case neighbourDelay:
			e.state = neighbourProbing
		}
		if int(e.asks) >= n.asksMax(&e.ip) {
			n.stats.Unreachable++
			if len(n.lost) < cap(n.lost) {
				n.lost = append(n.lost, e.ip)
			}
			n.remove(i)
			continue
		}
		e.asks++
		n.table.setTimer(i, now+n.retry(&e.ip))
		if e.state == neighbourIncomplete {
			return e.ip, Broadcast, true
		}
		return e.ip, e.mac, true
	}
	return Addr{}, MAC{}, false
}

// Clear forgets every neighbour, as when the link went down; frames still waiting go to
// TakeDropped.
func (n *Neighbours[T]) Clear() {
	for len(n.table.timers) > 0 {
		n.remove(n.table.timers[0].entry)
	}
}

// Stats may be called on the owner's goroutine only.
func (n *Neighbours[T]) Stats() NeighbourStats {
	s := n.stats
	s.Entries = len(n.table.timers)
	s.Frames = n.frames.held
	return s
}

// insert makes an Incomplete entry without a timer, which the caller sets; negative: refused.
func (n *Neighbours[T]) insert(ip Addr) int32 {
	if !ip.IsStation() {
		n.stats.Refused++
		return -1
	}
	if len(n.table.free) == 0 {
		victim := n.table.victim()
		if victim < 0 {
			n.stats.Refused++
			return -1
		}
		n.stats.Evicted++
		n.remove(victim)
	}
	n.stats.Created++
	return n.table.insert(ip)
}

func (n *Neighbours[T]) remove(i int32) {
	n.frames.drop(&n.table.entries[i].waiting)
	n.table.remove(i)
}

// enqueue puts frame after those that wait for e; false: the caller keeps it.
func (n *Neighbours[T]) enqueue(e *neighbour, frame T) bool {
	if !n.frames.push(&e.waiting, frame) {
		n.stats.FramesFull++
		return false
	}
	if int(e.waiting.count) > n.cfg.QueueMax {
		n.stats.Displaced++
		n.frames.displace(&e.waiting)
	}
	return true
}
