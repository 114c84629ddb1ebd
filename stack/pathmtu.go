package stack

import (
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/tcp"
)

// pathState is what a connection knows of the sizes its path carries, in octets of IP packet (RFC 5927 section 7.2: its
// nsegrto, maxsizeacked and maxsizesent, kept per connection).
type pathState struct {
	mtu      int // what we send at most
	fixed    int // IP and TCP headers without options
	header   int // of the last segment with octets, options included
	sent     int // largest packet sent
	acked    int // largest that was acknowledged
	pending  int // a path MTU below acked that waits for a timeout; 0: none
	timeouts uint64
	stalled  bool // a timeout, and nothing acknowledged since
	confirms int64
	seen     uint32 // of hostState.lowered
}

// beginPath sets the sizes of a connection that is about to be started: the MSS is that of the link (RFC 9293 MUST-67,
// RFC 8200 section 8.3), what is sent that of the path.
func (p *Poller) beginPath(c *Conn) {
	fixed := ipLen(&c.id.Remote) + tcpHeaderLen
	c.path = pathState{mtu: p.mtuTo(c.id.Remote), fixed: fixed, header: fixed, seen: p.host.lowered}
	c.tcp.SetMSS(p.linkMSS(&c.id.Remote))
}

// linkMSS is what is announced to dst.
func (p *Poller) linkMSS(dst *inet.Addr) int { return p.linkMTU(dst) - ipLen(dst) - tcpHeaderLen }

// limitPath applies what is known of the path to a connection that was just started.
func (p *Poller) limitPath(c *Conn) {
	if c.path.mtu < p.linkMTU(&c.id.Remote) {
		c.tcp.SetEMSSLimit(c.path.mtu - c.path.fixed)
	}
}

// packetTooBig takes a report about a segment of c that is in flight (RFC 1191 section 3, RFC 8201 section 4). One that
// is not below what was sent tells nothing. One below what has been acknowledged contradicts the path's own evidence
// and waits until the segment has timed out (RFC 5927 section 7.2): on a connection that flows it does nothing.
func (p *Poller) packetTooBig(c *Conn, e *inet.ICMPError, seq tcp.Seq) {
	mtu := e.Believed()
	p.followPath(c)
	s := &c.path
	switch {
	case mtu == 0, mtu >= s.mtu, mtu >= s.sent:
		p.n.ICMPIgnored++
	case mtu < s.acked && !s.stalled:
		p.n.ICMPIgnored++
		s.pending = mtu
	default:
		p.lowerPath(c, mtu)
	}
}

// lowerPath takes a path MTU for all connections to c's destination. The others learn of it when they are next served: a
// report costs the same however many there are, as anybody may send some about a connection of his own.
func (p *Poller) lowerPath(c *Conn, mtu int) {
	c.path.pending = 0
	p.n.PathMTU++
	p.host.paths.Lower(p.now, c.id.Remote, mtu, p.linkMTU(&c.id.Remote))
	p.host.lowered++
	p.followPath(c)
	p.touch(c)
	p.schedule()
}

// followPath lowers what c sends at most if some path has become smaller since it last looked, and that was its own.
func (p *Poller) followPath(c *Conn) {
	if c.path.seen == p.host.lowered {
		return
	}
	c.path.seen = p.host.lowered
	if mtu := p.mtuTo(c.id.Remote); mtu < c.path.mtu {
		c.setPath(mtu)
	}
}

// raisePath makes the link's MTU that of all connections to dst: the estimate is old (RFC 1191 section 6.3).
func (p *Poller) raisePath(dst inet.Addr) {
	mtu := p.linkMTU(&dst)
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.phase != phaseFree && c.id.Remote == dst && c.path.mtu != mtu {
			c.path.seen = p.host.lowered
			c.setPath(mtu)
			p.touch(c)
		}
	}
}

func (c *Conn) setPath(mtu int) {
	c.path.mtu, c.path.acked, c.path.sent = mtu, min(c.path.acked, mtu), min(c.path.sent, mtu)
	c.tcp.SetEMSSLimit(mtu - c.path.fixed)
}

// timedOut is called when a timer of c was served: a report that waited for a retransmission timeout may have got it.
func (p *Poller) timedOut(c *Conn) {
	n := c.tcp.Stats().Timeouts
	if n == c.path.timeouts {
		return
	}
	c.path.timeouts, c.path.stalled = n, true
	if c.path.pending != 0 {
		p.lowerPath(c, c.path.pending)
	}
}

// progressed is called when new octets of c were acknowledged: the path carries what was sent, and the next hop is alive
// (RFC 4861 section 7.3.1), which the neighbour table is told once a second at most.
func (p *Poller) progressed(c *Conn) {
	c.path.stalled, c.path.pending = false, 0
	if p.now-c.path.confirms >= second64 {
		c.path.confirms = p.now
		p.neighbours.Confirm(p.now, c.nextHop)
	}
}
