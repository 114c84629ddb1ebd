package stack

import (
	"fmt"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// listener is a passive open of one port.
type listener struct {
	port     uint16
	backlog  int // half-open connections at most
	halfOpen int
	opening  list // they, oldest first
	accept   func(c *Conn) Upper
}

// Listen accepts connections to port. accept is called when the handshake is done and returns the Upper, or nil to
// reset; the Upper's Established follows at once. backlog bounds the connections whose handshake is not done: beyond it
// the oldest gives way, counted, so that peers who never answer cannot keep the port closed. Poller goroutine.
func (p *Poller) Listen(port uint16, backlog int, accept func(c *Conn) Upper) error {
	switch {
	case p.stopped || p.stopping.Load():
		return ErrStopped
	case port == 0 || backlog <= 0 || accept == nil:
		return fmt.Errorf("stack: listen on port %d, backlog %d: want a port, a positive backlog and an accept function", port, backlog)
	case p.listeners[port] != nil:
		return fmt.Errorf("stack: listen on port %d: %w", port, ErrPortUsed)
	}
	p.listeners[port] = &listener{port: port, backlog: backlog, opening: emptyList, accept: accept}
	return nil
}

// Unlisten ends a passive open and resets its half-open connections; established ones stay. Poller goroutine.
func (p *Poller) Unlisten(port uint16) {
	l := p.listeners[port]
	if l == nil {
		return
	}
	delete(p.listeners, port)
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.listener == l {
			p.abort(c, ErrAborted)
		}
	}
}

// stray handles a segment that belongs to no connection (RFC 9293 sections 3.10.7.1 and 3.10.7.2). It returns
// whether b is done with.
func (p *Poller) stray(b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment) bool {
	l := p.listeners[id.LocalPort]
	switch {
	case l == nil:
		p.n.TCP[tcp.DropNoConn]++
		return p.reset(b, src, id, s)
	case s.Flags&tcp.RST != 0: // first, check for a RST: ignored
		p.n.TCP[tcp.DropState]++
	case s.Flags&tcp.ACK != 0: // second, an ACK: it acknowledges what we never sent
		p.n.TCP[tcp.DropNoConn]++
		return p.reset(b, src, id, s)
	case s.Flags&(tcp.SYN|tcp.FIN) == tcp.SYN: // third, a SYN; with FIN it is no request but a probe
		p.passiveOpen(l, id, s)
	default:
		p.n.TCP[tcp.DropState]++
	}
	return true
}

// passiveOpen starts a half-open connection. Octets that came with the SYN are not taken: the peer sends them again.
func (p *Poller) passiveOpen(l *listener, id *tcp.ID, s *tcp.Segment) {
	hop, ok := p.route(id.Remote)
	if !ok {
		p.n.Own[DropNoRoute]++
		return
	}
	if l.halfOpen >= l.backlog {
		p.n.Own[DropBacklogFull]++
		p.forget(&p.slab.conns[l.opening.first])
	}
	c := p.takeConn(id, hop)
	if c == nil && l.halfOpen > 0 { // no slot is free: one that is not used yet gives way, too
		p.n.Own[DropBacklogFull]++
		p.forget(&p.slab.conns[l.opening.first])
		c = p.takeConn(id, hop)
	}
	if c == nil {
		p.n.Own[DropConnMax]++
		return
	}
	c.listener = l
	l.halfOpen++
	l.opening.pushBack(p.slab.conns, c.index)
	c.irs = s.Seq
	c.tcp.Accept(p.now, *id, c.iss, p.timestampOffset(id), s)
	p.touch(c)
}

// reset answers a segment without a connection, in its own Buf and to the station it came from: no neighbour is
// looked up for a stranger. Returns whether b is done with.
func (p *Poller) reset(b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment) bool {
	t := &p.tx.segment
	if !tcp.ResetFor(*id, s, t) {
		return true
	}
	if !p.rst.take(p.now) {
		p.n.Own[DropRSTLimited]++
		return true
	}
	p.putHeaders(b, t, 0, 0)
	if !p.reply(b, src) {
		return true
	}
	p.n.RSTSent++
	return false
}
