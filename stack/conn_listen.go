package stack

import (
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
)

// listener is a passive open of one port, at one, some or all of our addresses.
type listener struct {
	ends
	port             uint16
	next             *listener // of the same port, at other addresses
	backlog          int       // half-open connections at most
	halfOpen         int
	oldest, youngest connIndex // of them, in the SYN cache
	cookieAt         int64     // when the latest cookie was sent
	cookies          bool      // one ever was
	accept           func(c *Conn) Upper
}

// Listen is ListenAt for all of our addresses.
func (p *Poller) Listen(port uint16, backlog int, accept func(c *Conn) Upper) error {
	return p.ListenAt(netip.AddrPortFrom(netip.Addr{}, port), false, backlog, accept)
}

// ListenAt accepts connections to local's port at local's address: 0.0.0.0 stands for all of IPv4,
// :: for all of IPv6, and the zero Addr for both. held: the caller has the port from Hold. accept
// is called when a handshake is done. It returns the Upper, whose Established follows at once, or
// nil, which resets the connection. backlog bounds the connections whose handshake is not done.
// SYNs beyond it are answered with cookies, which take no memory; with Config.NoSynCookies the
// oldest half-open connection gives way. So peers that never answer cannot keep the port closed.
// Poller's goroutine. Errors: ErrStopped; ErrNotLocal; ErrPortUsed, where another passive open
// takes connections to such an address, or the port is held.
func (p *Poller) ListenAt(local netip.AddrPort, held bool, backlog int,
	accept func(c *Conn) Upper) error {
	at, port := endsOf(local.Addr()), local.Port()
	switch {
	case p.stopped || p.stopping.Load():
		return ErrStopped
	case port == 0 || backlog <= 0 || accept == nil:
		return fmt.Errorf("stack: listen on port %d, backlog %d: want a port, a positive backlog and "+
			"an accept function", port, backlog)
	case !at.all && p.host.Find(&at.addr) == nil:
		return fmt.Errorf("stack: listen at %v: %w", local, ErrNotLocal)
	case p.listenerLike(&at, port) != nil || !held && p.held[port] > 0:
		return fmt.Errorf("stack: listen on port %d: %w", port, ErrPortUsed)
	}
	p.listeners[port] = &listener{ends: at, port: port, next: p.listeners[port], backlog: backlog,
		oldest: noConn, youngest: noConn, accept: accept}
	return nil
}

// Unlisten is UnlistenAt for what Listen has begun.
func (p *Poller) Unlisten(port uint16) { p.UnlistenAt(netip.AddrPortFrom(netip.Addr{}, port)) }

// UnlistenAt ends a passive open and resets its half-open connections; established ones stay.
// Poller goroutine.
func (p *Poller) UnlistenAt(local netip.AddrPort) {
	at := endsOf(local.Addr())
	for l := p.listeners[local.Port()]; l != nil; l = l.next {
		if l.ends == at {
			p.unlisten(l)
			return
		}
	}
}

func (p *Poller) unlisten(l *listener) {
	p.forgetListener(l)
	for l.oldest != noConn {
		p.resetSyn(&p.syns.entries[l.oldest])
		p.dropSyn(l.oldest)
	}
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.listener == l {
			p.abort(c, whyAborted)
		}
	}
}

// stray handles a segment that belongs to no connection (RFC 9293 sections 3.10.7.1 and 3.10.7.2),
// or to a half-open one. payload is its octets in b. It returns whether b is done with.
func (p *Poller) stray(b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment, payload []byte) bool {
	l := p.listenerOf(&id.Local, id.LocalPort)
	if l == nil {
		p.n.TCP[tcp.DropNoConn]++
		return p.reset(b, src, id, s)
	}
	if i := p.findSyn(id); i != noConn {
		return p.inputSyn(i, b, src, s, payload)
	}
	switch {
	case s.Flags&tcp.RST != 0: // first, check for a RST: ignored
		p.n.TCP[tcp.DropState]++
	case s.Flags&tcp.ACK != 0:
		// second, an ACK: it acknowledges what we never sent, unless that is a cookie
		if l.cookies && p.now-l.cookieAt < tcp.CookieLifeNs {
			if half, ok := p.cookie(id, s); ok {
				return p.complete(l, b, id, &half, payload)
			}
			p.n.CookiesBad++
		}
		p.n.TCP[tcp.DropNoConn]++
		return p.reset(b, src, id, s)
	case s.Flags&(tcp.SYN|tcp.FIN) == tcp.SYN: // third, a SYN; with FIN it is no request but a probe
		return p.passiveOpen(l, b, src, id, s, p.initialSeq(id))
	default:
		p.n.TCP[tcp.DropState]++
	}
	return true
}

// passiveOpen begins a half-open connection, whose initial sequence number is iss, and answers the
// SYN in its own Buf.
func (p *Poller) passiveOpen(l *listener, b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment,
	iss tcp.Seq) bool {
	if _, ok := p.host.Route(p.now, id.Remote); !ok {
		p.n.Own[DropNoRoute]++
		return true
	}
	if p.peerFull(&id.Remote) && !p.silentElsewhere(&id.Remote) {
		p.n.Own[DropPeerMax]++
		return true
	}
	half := tcp.NewHalf(iss, p.timestampOffset(id), s)
	if l.halfOpen >= l.backlog || p.syns.free == noConn {
		p.n.Own[DropBacklogFull]++
		if !p.cfg.NoSynCookies {
			return p.sendCookie(l, b, src, id, &half)
		}
		if l.oldest == noConn { // other listeners' fill the cache
			return true
		}
		p.dropSyn(l.oldest)
	}
	p.n.HalfOpened++
	return p.synAck(p.addSyn(l, id, &half, src), b, true)
}

// inputSyn gives a segment to a half-open connection.
func (p *Poller) inputSyn(i connIndex, b mem.Buf, src inet.MAC, s *tcp.Segment,
	payload []byte) bool {
	e := &p.syns.entries[i]
	switch e.half.Judge(p.memory.Config(), s) {
	case tcp.HalfAgain:
		p.n.TCP[tcp.DropDuplicate]++
		return p.synAck(i, b, false)
	case tcp.HalfReset:
		p.n.TCP[tcp.DropAckUnsent]++
		return p.reset(b, src, &e.id, s)
	case tcp.HalfForget:
		p.dropSyn(i)
		return true
	case tcp.HalfRenew:
		l, id := e.listener, e.id
		p.dropSyn(i)
		return p.passiveOpen(l, b, src, &id, s, p.initialSeq(&id))
	case tcp.HalfOpen:
		l, id, half := e.listener, e.id, e.half
		full, why := !p.slotFree() && p.silent.first == noConn, DropConnMax
		if !full {
			if full, why = p.peerFull(&id.Remote), DropPeerMax; full {
				p.askForPlace(&id.Remote)
			}
		}
		if full { // the SYN,ACK's timer goes on, and so do the peer's ACKs
			e.full = true
			p.n.Own[why]++
			return true
		}
		p.dropSyn(i)
		return p.complete(l, b, &id, &half, payload)
	}
	p.n.TCP[tcp.DropState]++
	return true
}

// complete makes a connection of a half-open one whose handshake the present segment ends.
func (p *Poller) complete(l *listener, b mem.Buf, id *tcp.ID, half *tcp.Half, payload []byte) bool {
	hop, ok := p.host.Route(p.now, id.Remote)
	if !ok {
		p.n.Own[DropNoRoute]++
		return true
	}
	p.makePlace(&id.Remote)
	if !p.peers.take(&id.Remote) {
		p.askForPlace(&id.Remote)
		p.n.Own[DropPeerMax]++
		return true
	}
	home := p.host.Use(p.now, &id.Local)
	if home == nil {
		p.peers.untake(&id.Remote)
		p.n.Inet[inet.DropNotOurs]++
		return true
	}
	c := p.takeConn(id, hop, home)
	if c == nil {
		p.peers.untake(&id.Remote)
		p.n.Own[DropConnMax]++
		return true
	}
	p.peers.add(c)
	c.listener = l
	c.tcp.Resume(p.now, *id, half)
	p.limitPath(c)
	p.segment(b, payload)
	return p.input(c)
}

// reset answers a segment that belongs to no connection, in the segment's own Buf and to the
// station it came from: the neighbour table is not asked, so an unproven peer cannot fill it. It
// returns whether b is done with.
func (p *Poller) reset(b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment) bool {
	t := &p.tx.segment
	if !tcp.ResetFor(*id, s, t) {
		return true
	}
	if !p.rst.Take(p.now) {
		p.n.Own[DropRSTLimited]++
		return true
	}
	if p.answer(b, src, t) {
		return true
	}
	p.n.RSTSent++
	return false
}
