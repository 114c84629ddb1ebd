package stack

import (
	"math"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// synCache holds half-open connections (RFC 4987 section 3.5): an entry of some hundred octets
// each, no slot, no tcp.Conn. Entries are found by a keyed hash, bounded in number by
// Config.SynMax, and by a listener's backlog for what comes to its port. It sends SYN,ACKs and the
// RSTs of those that it gives up; what becomes of a handshake that is done, its caller decides. Of
// a SYN that is answered with a cookie it keeps nothing (conn_cookie.go).
type synCache struct {
	pool     *mem.Pool
	memory   *tcp.Memory
	host     *iphost.Host
	table    *lookup // for its hash
	secret   *secret
	tx       *transmitter
	counters *Counters
	template tcp.Conn // makes the SYN,ACKs

	entries []synEntry
	buckets []connIndex // by hash: first of a chain
	free    connIndex   // chain of unused ones
	n       int
	timers  timers
}

type synEntry struct {
	id   tcp.ID
	half tcp.Half
	// where the SYN came from, and the SYN,ACK goes to: no neighbour is looked up for an unproven peer
	mac      inet.MAC
	full     bool      // the handshake was done, and there was no slot
	chain    connIndex // same bucket, or next unused
	older    connIndex // of the same listener
	younger  connIndex
	listener *listener
}

func newSynCache(p *Poller) synCache {
	n := p.cfg.SynMax
	s := synCache{
		pool: p.pool, memory: p.memory, host: p.host, table: &p.table, secret: &p.secret, tx: &p.tx,
		counters: &p.n,
		entries:  make([]synEntry, n), buckets: make([]connIndex, powerOfTwo(n)),
		timers: newTimers(n, p.now), free: noConn,
	}
	s.template.Init(p.memory)
	s.template.Mute()
	for i := range s.buckets {
		s.buckets[i] = noConn
	}
	for i := n - 1; i >= 0; i-- {
		s.entries[i].chain = s.free
		s.free = connIndex(i)
	}
	return s
}

// full says that there is no entry left.
func (s *synCache) full() bool { return s.free == noConn }

// deadline is when expire has something to do; math.MaxInt64: never.
func (s *synCache) deadline() int64 {
	if s.n == 0 {
		return math.MaxInt64
	}
	return s.timers.first()
}

// expire sends SYN,ACKs again that were not answered, and gives up those that never are.
func (s *synCache) expire(now int64) int {
	if s.n == 0 {
		return 0
	}
	s.timers.advance(now)
	work := 0
	for range timersPerTurnMax {
		i := s.timers.soonest(now)
		if i == noConn {
			break
		}
		if s.timers.early(i) {
			continue
		}
		work++
		s.timers.remove(i)
		e := &s.entries[i]
		if e.half.Tries() > s.memory.Config().SynAckRetries {
			s.counters.HalfOpenLost++
			if e.full {
				s.reset(now, e)
			}
			s.drop(i)
			continue
		}
		if b := s.pool.Alloc(); b == mem.NoBuf {
			s.counters.Own[DropNoBuf]++
			s.arm(now, i)
		} else if s.synAck(now, i, b, true) {
			s.tx.dead.add(b)
		}
	}
	return work
}

// find is the half-open connection of id, or noConn.
func (s *synCache) find(id *tcp.ID) connIndex {
	if s.n == 0 {
		return noConn
	}
	i := *s.bucket(id)
	for i != noConn && s.entries[i].id != *id {
		i = s.entries[i].chain
	}
	return i
}

// add makes an entry, the youngest of l's; the caller has seen to it that one is free.
func (s *synCache) add(l *listener, id *tcp.ID, half *tcp.Half, mac inet.MAC) connIndex {
	i := s.free
	e := &s.entries[i]
	s.free = e.chain
	s.n++
	at := s.bucket(id)
	*e = synEntry{id: *id, half: *half, mac: mac, chain: *at, older: l.youngest, younger: noConn,
		listener: l}
	*at = i
	if l.youngest == noConn {
		l.oldest = i
	} else {
		s.entries[l.youngest].younger = i
	}
	l.youngest = i
	l.halfOpen++
	return i
}

// drop forgets an entry.
func (s *synCache) drop(i connIndex) {
	e := &s.entries[i]
	at := s.bucket(&e.id)
	for *at != i {
		at = &s.entries[*at].chain
	}
	*at = e.chain
	l := e.listener
	if e.older == noConn {
		l.oldest = e.younger
	} else {
		s.entries[e.older].younger = e.younger
	}
	if e.younger == noConn {
		l.youngest = e.older
	} else {
		s.entries[e.younger].older = e.older
	}
	l.halfOpen--
	s.timers.remove(i)
	e.listener = nil
	e.chain, s.free = s.free, i
	s.n--
}

// dropOf resets and forgets the half-open connections of a, an address of ours that is given
// up. The RSTs may be all that tells their peers: RFC 5227 section 2.4, "Before abandoning an
// address due to a conflict, hosts SHOULD actively attempt to reset any existing connections".
func (s *synCache) dropOf(now int64, a *inet.Addr) {
	mute := s.tx.mute
	s.tx.mute = false // what leads here may have come to another member of the Group
	for i := range s.entries {
		if e := &s.entries[i]; e.listener != nil && e.id.Local == *a {
			s.reset(now, e)
			s.drop(connIndex(i))
		}
	}
	s.tx.mute = mute
}

// bucket is where the chain of id begins.
func (s *synCache) bucket(id *tcp.ID) *connIndex {
	return &s.buckets[s.table.hash(id)&uint32(len(s.buckets)-1)]
}

// synAck sends e's SYN,ACK in b and returns whether b is done with. timed: its timer asks for it.
func (s *synCache) synAck(now int64, i connIndex, b mem.Buf, timed bool) bool {
	e := &s.entries[i]
	s.template.SetMSS(linkMSS(s.host, &e.id.Remote))
	e.half.SynAck(now, e.id, &s.template, timed, &s.tx.segment)
	if timed {
		s.arm(now, i)
	}
	return s.tx.answer(b, e.mac, &s.tx.segment)
}

// arm waits for the next time: the initial RTO, doubled each time.
func (s *synCache) arm(now int64, i connIndex) {
	cfg := s.memory.Config()
	wait := cfg.RTOMaxNs
	if n := max(s.entries[i].half.Tries()-1, 0); cfg.RTOInitialNs <= wait>>n {
		wait = cfg.RTOInitialNs << n
	}
	s.timers.arm(i, now+wait)
}

// reset tells the peer of a half-open connection that there will be none.
func (s *synCache) reset(now int64, e *synEntry) {
	b := s.pool.Alloc()
	if b == mem.NoBuf {
		s.counters.Own[DropNoBuf]++
		return
	}
	e.half.Reset(now, e.id, s.memory.Config(), &s.tx.segment)
	if s.tx.answer(b, e.mac, &s.tx.segment) {
		s.tx.dead.add(b)
	}
}
