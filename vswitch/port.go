package vswitch

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

// port is a program, or one queue of an uplink, or a wire to another core. All but what is set when it is made belongs to its
// core.
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

// Copies are made of what is for all of a link, and of what is for all members of a station; the first
// do not use up what the second, answers among them, need.
const (
	toLink = iota
	toStation
)

// outgoing are frames that wait for room in a queue.
type outgoing struct{ bufs []mem.Buf }

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
	m.receive = [2]bucket{newBucket(p.Receive.Octets, burst*longest), newBucket(p.Receive.Frames, burst)}
}

// accept takes a frame to be sent, or drops it: a program that does not receive does not hold up others.
func (m *port) accept(c *Core, b mem.Buf) {
	n := int(c.pool.Desc(b).Len)
	reason := Passed
	switch {
	case m.waiting >= m.buffers:
		reason = Full
	case n > m.mtu+pmd.FrameOverhead:
		reason = TooLong
	case m.memif != nil && !m.memif.LinkUp():
		reason = Detached
	case m.receive[octets].rate|m.receive[frames].rate != 0 && m.over(c, n):
		reason = Over
	}
	if reason != Passed {
		m.stats.Drops[reason]++
		c.pool.Free(b)
		return
	}
	q := 0
	if len(m.out) > 1 {
		q = int(spread(c.pool.Data(b)) % uint32(len(m.out)))
	}
	m.out[q].bufs = append(m.out[q].bufs, b) // within the capacity that it has
	m.waiting++
	if !m.dirty {
		m.dirty = true
		c.dirty = append(c.dirty, m)
	}
}

func (m *port) over(c *Core, n int) bool {
	m.receive[octets].fill(c.now)
	m.receive[frames].fill(c.now)
	if m.receive[octets].empty() || m.receive[frames].empty() {
		return true
	}
	m.receive[octets].take(int64(n))
	m.receive[frames].take(1)
	return false
}

// flush gives the queues what they take; the rest waits.
func (m *port) flush(c *Core) {
	for i := range m.out {
		o := &m.out[i]
		if len(o.bufs) == 0 {
			continue
		}
		n := m.queues[i].Tx(o.bufs)
		for _, b := range o.bufs[:n] {
			m.stats.Sent++
			m.stats.SentOctets += uint64(c.pool.Desc(b).Len)
			c.pool.Free(b)
		}
		m.waiting -= n
		o.bufs = o.bufs[:copy(o.bufs, o.bufs[n:])]
	}
}

// discard frees what waits.
func (m *port) discard(c *Core) {
	for i := range m.out {
		c.pool.FreeN(m.out[i].bufs)
		m.out[i].bufs = m.out[i].bufs[:0]
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
