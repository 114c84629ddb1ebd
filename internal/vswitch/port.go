package vswitch

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

// port is a program, or one queue of an uplink, or a wire to another core. All but what is set
// when it is made belongs to its core.
type port struct {
	name    string
	cfg     Program // of a program: what the configuration says. The Switch's
	program Program // and what the core goes by
	uplink  int     // number of an uplink
	queue   int     // of that, or of a wire: the other core
	kind    portKind
	core    int
	slot    uint16 // in plan.ports
	serial  uint32 // no two ports have the same, ever
	memif   *memif.Port
	socket  *socket

	mtu           int
	queues        []pmd.Queue
	first         int        // of the queues: the one that is polled first
	out           []outgoing // of each queue
	buffers       int        // that may wait, in all of them
	waiting       int
	movedAt       int64    // when a queue last took a frame
	held          bool     // frames wait for its Receive rate
	station       *station // of a program
	member        uint8    // of its station, from 1
	send, receive [2]bucket
	copies        [2]bucket // of frames from here, to toLink and toStation
	dirty         bool
	stats         PortStats

	next struct { // what the plan that is being made says; the core takes it over with that
		station *station
		member  uint8
	}
}

type portKind uint8

const (
	kindProgram portKind = iota
	kindUplink
	kindWire
)

// Buckets of a direction.
const (
	octets = iota
	frames
)

// Copies are made of what is for all of a link, and of what is for all members of a station; the
// first do not use up what the second, answers among them, need.
const (
	toLink = iota
	toStation
)

func (m *port) isUplink() bool { return m.kind == kindUplink }

// segment is the uplink that a frame from here belongs to.
func (m *port) segment() int {
	if m.kind == kindUplink {
		return m.uplink
	}
	return m.program.Uplink
}

// attached says whether frames get anywhere. Any goroutine.
func (m *port) attached() bool { return m.memif == nil || m.memif.LinkUp() }

// limit sets what a configuration says; the buckets are full.
func (m *port) limit(p *Program) {
	m.program, m.buffers, m.mtu = *p, p.Buffers, p.MTU
	longest := int64(p.MTU + pmd.FrameOverhead)
	m.send = [2]bucket{newBucket(p.Send.Octets, burst*longest), newBucket(p.Send.Frames, burst)}
	m.receive = [2]bucket{newBucket(p.Receive.Octets, burst*longest),
		newBucket(p.Receive.Frames, burst)}
}

// accept takes a frame of a source to be sent, or drops it: a program that does not receive does
// not hold up others. Where as many wait as may, a source with more of them than this one makes
// room.
func (m *port) accept(c *Core, from slot, b mem.Buf) {
	switch {
	case int(c.pool.Desc(b).Len) > m.mtu+pmd.FrameOverhead:
		m.drop(c, b, TooLong)
		return
	case m.memif != nil && !m.memif.LinkUp():
		m.drop(c, b, Detached)
		return
	}
	q := 0
	if len(m.out) > 1 {
		q = int(spread(c.pool.Data(b)) % uint32(len(m.out)))
	}
	o := &m.out[q]
	if int(from) >= len(o.flows) {
		from = 0 // of a plan that this core has not yet, or not any more
	}
	if m.waiting >= m.buffers {
		full := Full
		if m.held {
			full = Over
		}
		rival := m.longest()
		if rival.longest() <= class(o.flows[from].frames) {
			m.drop(c, b, full)
			return
		}
		m.drop(c, rival.evict(c), full)
		m.waiting--
	}
	o.put(c, from, b, m.quantum())
	m.waiting++
	if !m.dirty {
		m.dirty = true
		c.dirty = append(c.dirty, m)
	}
}

func (m *port) drop(c *Core, b mem.Buf, r Reason) {
	if m.kind == kindWire {
		c.stats.Drops[WireFull]++
	} else {
		m.stats.Drops[r]++
	}
	c.pool.Free(b)
}

// longest is the queue that has one of the longest flows.
func (m *port) longest() *outgoing {
	o := &m.out[0]
	for i := range m.out[1:] {
		if other := &m.out[1+i]; other.filled > o.filled {
			o = other
		}
	}
	return o
}

// over says whether a program has been given all that its rate allows.
func (m *port) over(c *Core) bool {
	if m.receive[octets].rate|m.receive[frames].rate == 0 {
		return false
	}
	m.receive[octets].fill(c.now)
	m.receive[frames].fill(c.now)
	return m.receive[octets].empty() || m.receive[frames].empty()
}

// stillNs after it has last taken a frame an uplink holds up nobody any more: what is for it is
// lost, and what is for others goes on.
const stillNs = 10_000_000

// flush gives the queues what they take; the rest waits.
func (m *port) flush(c *Core) {
	m.held = false
	for i := range m.out {
		o, more := &m.out[i], true
		for more {
			m.choose(c, o)
			if len(o.stage) == 0 {
				break
			}
			n := m.queues[i].Tx(o.stage)
			for _, b := range o.stage[:n] {
				m.stats.Sent++
				m.stats.SentOctets += uint64(c.pool.Desc(b).Len)
				c.pool.Free(b)
			}
			m.waiting -= n
			if n > 0 {
				m.movedAt = c.now
			}
			more = n == len(o.stage)
			o.stage = o.stage[:copy(o.stage, o.stage[n:])]
			if more {
				o.batch = min(2*o.batch, burst)
			} else {
				o.batch = max(o.batch/2, 1)
			}
		}
	}
}

// choose fills a queue's stage.
func (m *port) choose(c *Core, o *outgoing) {
	for len(o.stage) < o.batch {
		if m.over(c) {
			m.held = true
			return
		}
		b, ok := o.choose(c, m.quantum())
		if !ok {
			return
		}
		m.receive[octets].take(int64(c.pool.Desc(b).Len))
		m.receive[frames].take(1)
		o.stage = append(o.stage, b)
	}
}

// discard frees what waits.
func (m *port) discard(c *Core) {
	for i := range m.out {
		o := &m.out[i]
		c.pool.FreeN(o.stage)
		o.stage = o.stage[:0]
		for b, ok := o.choose(c, m.quantum()); ok; b, ok = o.choose(c, m.quantum()) {
			c.pool.Free(b)
		}
	}
	m.waiting = 0
}

// spread is the same for all frames of a flow: of addresses and ports.
func spread(b []byte) uint32 {
	at := pmd.EthernetLen
	if len(b) >= at+4 && be.Uint16(b[12:]) == 0x8100 {
		at += 4
	}
	var x uint64
	switch {
	case len(b) >= at+24 && b[at] == 0x45:
		x = be.Uint64(b[at+12:])
		if b[at+9] == 6 && be.Uint16(b[at+6:])&0x3fff == 0 {
			x ^= uint64(be.Uint32(b[at+20:])) << 16
		}
	case len(b) >= at+44 && b[at]>>4 == 6:
		for i := 8; i < 40; i += 8 {
			x = (x ^ be.Uint64(b[at+i:])) * 0x9e3779b97f4a7c15
		}
		if b[at+6] == 6 {
			x ^= uint64(be.Uint32(b[at+40:])) << 16
		}
	}
	return uint32(x * 0x9e3779b97f4a7c15 >> 33)
}
