package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
)

// synCache holds half-open connections (RFC 4987 section 3.5): an entry of some hundred octets
// each, no slot, no tcp.Conn. Entries are found by a keyed hash, bounded in number by
// Config.SynMax, and by a listener's backlog for what comes to its port.
type synCache struct {
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

func newSynCache(n int, now int64) synCache {
	s := synCache{
		entries: make([]synEntry, n), buckets: make([]connIndex, powerOfTwo(n)),
		timers: newTimers(n, now), free: noConn,
	}
	for i := range s.buckets {
		s.buckets[i] = noConn
	}
	for i := n - 1; i >= 0; i-- {
		s.entries[i].chain = s.free
		s.free = connIndex(i)
	}
	return s
}

// expireSyns sends SYN,ACKs again that were not answered, and gives up those that never are.
func (p *Poller) expireSyns() int {
	if p.syns.n == 0 {
		return 0
	}
	s := &p.syns
	s.timers.advance(p.now)
	work := 0
	for range timersPerTurnMax {
		i := s.timers.soonest(p.now)
		if i == noConn {
			break
		}
		if s.timers.early(i) {
			continue
		}
		work++
		s.timers.remove(i)
		e := &s.entries[i]
		if e.half.Tries() > p.memory.Config().SynAckRetries {
			p.n.HalfOpenLost++
			if e.full {
				p.resetSyn(e)
			}
			p.dropSyn(i)
			continue
		}
		if b := p.pool.Alloc(); b == mem.NoBuf {
			p.n.Own[DropNoBuf]++
			p.armSyn(i)
		} else if p.synAck(i, b, true) {
			p.discard(b)
		}
	}
	return work
}

// findSyn is the half-open connection of id, or noConn.
func (p *Poller) findSyn(id *tcp.ID) connIndex {
	if p.syns.n == 0 {
		return noConn
	}
	i := *p.synBucket(id)
	for i != noConn && p.syns.entries[i].id != *id {
		i = p.syns.entries[i].chain
	}
	return i
}

// addSyn makes an entry, the youngest of l's; the caller has seen to it that one is free.
func (p *Poller) addSyn(l *listener, id *tcp.ID, half *tcp.Half, mac inet.MAC) connIndex {
	s := &p.syns
	i := s.free
	e := &s.entries[i]
	s.free = e.chain
	s.n++
	at := p.synBucket(id)
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

// dropSyn forgets an entry.
func (p *Poller) dropSyn(i connIndex) {
	s := &p.syns
	e := &s.entries[i]
	at := p.synBucket(&e.id)
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

// dropSynsOf resets and forgets the half-open connections of a, an address of ours that is given
// up. The RSTs may be all that tells their peers: RFC 5227 section 2.4, "Before abandoning an
// address due to a conflict, hosts SHOULD actively attempt to reset any existing connections".
func (p *Poller) dropSynsOf(a *inet.Addr) {
	overheard := p.overheard
	p.overheard = false // what leads here may have come to another member of the Group
	for i := range p.syns.entries {
		if e := &p.syns.entries[i]; e.listener != nil && e.id.Local == *a {
			p.resetSyn(e)
			p.dropSyn(connIndex(i))
		}
	}
	p.overheard = overheard
}

// bucket is where the chain of id begins.
func (p *Poller) synBucket(id *tcp.ID) *connIndex {
	return &p.syns.buckets[p.table.hash(id)&uint32(len(p.syns.buckets)-1)]
}

// synAck sends e's SYN,ACK in b and returns whether b is done with. timed: its timer asks for it.
func (p *Poller) synAck(i connIndex, b mem.Buf, timed bool) bool {
	e := &p.syns.entries[i]
	p.templateConn.SetMSS(p.linkMSS(&e.id.Remote))
	e.half.SynAck(p.now, e.id, &p.templateConn, timed, &p.tx.segment)
	if timed {
		p.armSyn(i)
	}
	return p.answer(b, e.mac, &p.tx.segment)
}

// armSyn waits for the next time: the initial RTO, doubled each time.
func (p *Poller) armSyn(i connIndex) {
	cfg := p.memory.Config()
	wait := cfg.RTOMaxNs
	if n := max(p.syns.entries[i].half.Tries()-1, 0); cfg.RTOInitialNs <= wait>>n {
		wait = cfg.RTOInitialNs << n
	}
	p.syns.timers.arm(i, p.now+wait)
}

// resetSyn tells the peer of a half-open connection that there will be none.
func (p *Poller) resetSyn(e *synEntry) {
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return
	}
	e.half.Reset(p.now, e.id, p.memory.Config(), &p.tx.segment)
	if p.answer(b, e.mac, &p.tx.segment) {
		p.discard(b)
	}
}
