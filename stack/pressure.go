package stack

import (
	"math"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// The policy for packet buffers (Bufs) that run short. It is one policy for all connections of a
// Poller, whatever Upper is above them.
//
// A peer can make us keep Bufs in two ways. What we send is kept until the peer acknowledges it; a
// peer that takes its time, or shuts its window for ever (RFC 6429 calls it a persist stall,
// attackers sockstress), keeps those. What the peer sends is kept by the Upper (Kept) while octets
// are missing that only the peer can send. TCP itself never ends either: RFC 9293 section 3.8.6.1
// has a connection stay open as long as its peer answers probes. RFC 6429 section 3 leaves it to
// the system to end such connections when it needs what they hold. Here that is done in steps:
//
//   - Each use of the pool has a share (Budget). Nothing takes the last Bufs: ACKs must come in.
//   - A connection that gives a Buf back may take one, which nobody else gets meanwhile: peers that
//     do not acknowledge cannot drive a connection that flows out of the memory it works with.
//   - Those that flow share: the ones that hold few are lent Bufs, and the ones that hold many make
//     up for that; a few others that hold nothing are lent their first (pressure_loans.go).
//   - An eighth of the pool is for connections whose peer has ever acknowledged anything. The
//     cheapest attack, a handshake and then nothing, does not get there.
//   - No connection gets all Bufs: it may pull only while it holds no more than Config.BufShare
//     of what is still free (the dynamic threshold of A. K. Choudhury, E. L. Hahne, "Dynamic
//     queue length thresholds for shared-memory packet switches", 1998). One alone has two
//     thirds. However many want more, something is left for the next. No connection takes a
//     second Buf while others wait for their first.
//   - Connections that find no Buf, and have nothing in flight whose acknowledgment would bring
//     them back, wait in a list (pressure_waiting.go).
//   - While another connection does not get the Bufs or records it could use, or its Upper had to
//     refuse octets, connections whose peer is late are reset with ErrHoarding: those that hold
//     most first, at most four a millisecond. Late is a peer that has neither acknowledged what was
//     in flight nor sent the octets that others wait for: for Config.StallNs where another needs
//     memory (Conn.NeedBufs, or it has less than an initial window in flight), for
//     Config.TCP.UserTimeoutNs where it gets on without and only wants some (Conn.WantBufs, or more
//     in flight).
//   - Where retransmissions are lost, or repair one segment a round trip, a peer that answers at
//     once has octets outstanding for longer than StallNs. As long as it answers
//     (tcp.Conn.Repairing) it is late by Config.TCP.UserTimeoutNs. That is R2 of RFC 9293 section
//     3.8.3, "at least 100 seconds", unless a connection has a user timeout of its own, which
//     counts without need only.
//
// A peer is late until it has done all that it owed when its clock was set (PeerClock): an octet
// now and then does not set the clock again.

// Shares of the pool. What is left is for what waits to be acknowledged, and for the device.
const (
	reserveBursts   = 4 // receive bursts that sending leaves free,
	reserveShare    = 4 // and at most one Buf in so many
	provenShare     = 8 // one Buf in so many is for peers that have acknowledged something
	unreadShare     = 2 // one Buf in so many may wait for readers, or for octets before it
	windowShare     = 4 // the receive window of one stream: one Buf in so many
	growShare       = 4 // windows grow no more when one Buf in so many waits for readers
	incompleteShare = 4 // one Buf in so many is left free by octets that wait for the rest of a frame
)

// Budget is how a Poller shares its pool of Bufs, in numbers of Bufs. Uppers enforce all limits
// except Reserve and Proven.
type Budget struct {
	Reserve int // left free by sending, so that ACKs can come in; half may be lent (pressure_loans.go)
	Proven  int // beyond Reserve, for peers that have ever acknowledged anything

	// Of byte streams, all together. More octets in order are copied to other memory; others are
	// refused.
	Unread int // wait for a reader, or for octets before them
	// the most at which one more may wait for octets before it; less than Unread, so that octets
	// that fill gaps are taken
	OutOfOrder int
	Squeeze    int // when more than this wait, windows shrink to a few segments
	Grow       int // when more than this wait, windows do not grow
	Window     int // the largest window of one stream

	// Of frames that are cut across segments (MPA's FPDUs), all connections together.
	Spare        int // left free by octets that wait for the rest of their frame
	SpareInOrder int // the same for octets in order,
	PartialMax   int // while those take fewer Bufs than this
}

func newBudget(size, burstMax int) Budget {
	reserve := min(reserveBursts*burstMax, size/reserveShare)
	unread := size / unreadShare
	spare := size / incompleteShare
	return Budget{
		Reserve: reserve, Proven: max(size/provenShare-reserve, 0),
		Unread: unread, OutOfOrder: unread - unread/4, Squeeze: unread / 4 * 3,
		Grow: size / growShare, Window: size / windowShare,
		Spare: spare, SpareInOrder: min(reserve/2, spare), PartialMax: spare / 2,
	}
}

// Budget is the same for the life of the Poller. Any goroutine.
func (p *Poller) Budget() Budget { return p.pressure.budget }

// pressure says which connection may take a Buf, who waits for one, and whose connection ends when
// there are too few. It counts Bufs and keeps lists of connections; it takes no Buf itself, calls
// no Upper except for what it holds, and ends nothing. A connection is known to it from its first
// grant to forget.
type pressure struct {
	cfg      *Config
	pool     *mem.Pool
	memory   *tcp.Memory // records of sent segments
	conns    []Conn
	counters *Counters

	budget   Budget
	loans    loans
	promised int // Bufs that connections have given back and may take again, all together
	// connections that wait for a first run of memory, or for Bufs, longest first
	// (pressure_waiting.go)
	waiting  list
	unproven list // of them, those whose peer has never acknowledged anything

	hand   int   // the next connection that reclaim looks at
	lookAt int64 // when
	short  uint64
	needs  demand // since the last look
	wants  demand
}

func newPressure(cfg *Config, m *tcp.Memory, conns []Conn, n *Counters) pressure {
	s := pressure{
		cfg: cfg, pool: cfg.Pool, memory: m, conns: conns, counters: n,
		budget:  newBudget(cfg.Pool.Share(), cfg.BurstMax),
		waiting: emptyList, unproven: emptyList,
	}
	s.loans = newLoans(cfg.Pool.Share(), &s.budget)
	return s
}

// grant says whether c may have a Buf: in place of one of gotBack, which it has given back, so that
// others cannot drive it out of the memory it works with; of those to spare; or lent. waits: there
// is none, and nothing of c is in flight whose acknowledgment would bring it back.
func (s *pressure) grant(c *Conn, gotBack int) (granted, lent, waits bool) {
	if gotBack > 0 && s.pool.Available() > s.loans.lentMax {
		return true, false, false
	}
	free, held := s.spare(), c.tcp.Held()
	switch {
	case free < s.floor(c):
		s.demand(c)
		if s.lends(c) {
			return true, true, false
		}
		s.counters.NoBufWaits++
		return false, false, held == 0
	case held*100 > free*s.cfg.BufShare || held > 0 && s.claimed(free):
		if free < s.budget.Proven {
			s.demand(c)
		}
		if s.lends(c) {
			return true, true, false
		}
		s.counters.ShareWaits++
		return false, false, false
	}
	return true, false, false
}

// affords is how many Bufs c may take, which was granted one.
func (s *pressure) affords(c *Conn, lent bool, gotBack int) int {
	if lent {
		return 1
	}
	n := gotBack
	if free := s.spare(); !s.claimed(free) {
		share := (free*s.cfg.BufShare - c.tcp.Held()*100) / (100 + s.cfg.BufShare)
		n = max(n, min(free-s.floor(c), share))
	}
	return max(1, min(n, s.pool.Available()+1-s.loans.lentMax)) // with the sender's spare
}

// forget ends all that is kept of c, whose connection is over.
func (s *pressure) forget(c *Conn) {
	s.leaveGuests(c)
	s.promised -= int(c.gaveBack)
	c.gaveBack = 0
	s.stopWaiting(c)
}

// deadline is when a Turn is wanted for those that wait, or to look for a connection to end.
func (s *pressure) deadline(now int64, turns uint64) int64 {
	at := int64(math.MaxInt64)
	if s.waits() {
		at = now + retryNs
		if waiting, unproven := s.retriable(turns); waiting+unproven == 0 {
			at = max(at, s.lookAt)
		}
	}
	if s.demanded() {
		at = min(at, s.lookAt)
	}
	return at
}

// needBufs is what a connection needs in flight to get on: an initial window (RFC 6928).
const needBufs = 10

// demand notes that c could send more if it had Bufs.
func (s *pressure) demand(c *Conn) {
	if c.tcp.Held() < needBufs {
		s.need(c.index)
	} else {
		s.want(c.index)
	}
}

// NeedBufs says that the Upper had to refuse the next octets in order of c because Bufs are short:
// without Bufs c gets no further. Connections of peers that are late by Config.StallNs may be ended
// (ErrHoarding), but not c as long as it alone is refused. Poller's goroutine.
func (c *Conn) NeedBufs() { c.p.pressure.need(c.index) }

// WantBufs is NeedBufs of octets beyond a gap, which the peer sends again when the gap is filled:
// connections are ended whose peers are late by the user timeout.
func (c *Conn) WantBufs() { c.p.pressure.want(c.index) }

const (
	bufShareMax   = 100_000
	stallLookNs   = 250_000 // between two looks
	stallLooksMax = 64      // connections looked at each time
)

// reclaimable says that reclaim has something to look for.
func (s *pressure) reclaimable() bool {
	return s.demanded() || s.short != s.memory.RecordsShort()
}

// reclaim looks at some connections; the worst of them that is bad enough is to be ended, if there
// is one. A demand stands until one was found or all were looked at: those that make it may be back
// only after a retransmission timeout.
func (s *pressure) reclaim(now int64) (worst *Conn) {
	if short := s.memory.RecordsShort(); short != s.short {
		s.short = short
		s.needRecords()
	}
	if !s.demanded() || s.lookAt > now {
		return nil
	}
	looks := min(stallLooksMax, len(s.conns))
	s.lookAt = now + stallLookNs
	s.needs.late, s.wants.late = now-s.cfg.StallNs, s.giveUpSince(now)
	most := 0
	for range looks {
		if s.hand++; s.hand >= len(s.conns) {
			s.hand = 0
		}
		c := &s.conns[s.hand]
		if c.phase != phaseOpen {
			continue
		}
		if n := max(s.hoards(now, c, &s.needs), s.hoards(now, c, &s.wants)); n > most {
			worst, most = c, n
		}
	}
	s.needs.lookedAt(looks, len(s.conns))
	s.wants.lookedAt(looks, len(s.conns))
	if worst != nil {
		s.needs, s.wants = demand{}, demand{}
		s.counters.Reclaimed++
	}
	return worst
}

// giveUpSince is since when a peer owes that is late by the user timeout.
func (s *pressure) giveUpSince(now int64) int64 {
	return now - max(s.cfg.StallNs, s.cfg.TCP.UserTimeout())
}

// hoards is how many of the segments that d is for the peer of c makes us keep although it had its
// time. Those that the Upper keeps hold no record of a sent segment.
func (s *pressure) hoards(now int64, c *Conn, d *demand) (n int) {
	if !d.made || d.by == c.index { // its own demand is no one else's
		return 0
	}
	if c.marks&markAbort != 0 || c.tcp.State() == tcp.Closed {
		return 0
	}
	late := d.late
	if c.tcp.Repairing(now, s.cfg.StallNs) {
		late = min(late, s.giveUpSince(now))
	}
	if since, owes := c.tcp.Owes(); owes && since <= late {
		n = c.tcp.Held()
	}
	if c.upper != nil && d.bufs {
		if k, since := c.upper.Held(); since <= d.late {
			n += k
		}
	}
	return n
}
