package stack

import (
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
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
	case p.stopped || p.control.stopping.Load():
		return ErrStopped
	case port == 0 || backlog <= 0 || accept == nil:
		return fmt.Errorf("stack: listen on port %d, backlog %d: want a port, a positive backlog and "+
			"an accept function", port, backlog)
	case !at.all && p.host.Find(&at.addr) == nil:
		return fmt.Errorf("stack: listen at %v: %w", local, ErrNotLocal)
	case p.ports.like(&at, port) != nil || !held && p.ports.isHeld(port):
		return fmt.Errorf("stack: listen on port %d: %w", port, ErrPortUsed)
	}
	p.ports.add(&listener{ends: at, port: port, backlog: backlog, oldest: noConn, youngest: noConn,
		accept: accept})
	return nil
}

// Unlisten is UnlistenAt for what Listen has begun.
func (p *Poller) Unlisten(port uint16) { p.UnlistenAt(netip.AddrPortFrom(netip.Addr{}, port)) }

// UnlistenAt ends a passive open and resets its half-open connections; established ones stay.
// Poller goroutine.
func (p *Poller) UnlistenAt(local netip.AddrPort) {
	at := endsOf(local.Addr())
	if l := p.ports.exactly(&at, local.Port()); l != nil {
		p.unlisten(l)
	}
}

func (p *Poller) unlisten(l *listener) {
	p.ports.forget(l)
	for l.oldest != noConn {
		p.syns.reset(p.now, &p.syns.entries[l.oldest])
		p.syns.drop(l.oldest)
	}
	for i := range p.slab.conns {
		if c := &p.slab.conns[i]; c.listener == l {
			c.abort(whyAborted)
		}
	}
}

// stray handles a segment that belongs to no connection (RFC 9293 sections 3.10.7.1 and 3.10.7.2),
// or to a half-open one. payload is its octets in b. It returns whether b is done with.
func (p *Poller) stray(b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment, payload []byte) bool {
	l := p.ports.listener(&id.Local, id.LocalPort)
	if l == nil {
		p.n.TCP[tcp.DropNoConn]++
		return p.tx.reset(p.now, b, src, id, s)
	}
	if i := p.syns.find(id); i != noConn {
		return p.inputSyn(i, b, src, s, payload)
	}
	switch {
	case s.Flags&tcp.RST != 0: // first, check for a RST: ignored
		p.n.TCP[tcp.DropState]++
	case s.Flags&tcp.ACK != 0:
		// second, an ACK: it acknowledges what we never sent, unless that is a cookie
		if l.cookies && p.now-l.cookieAt < tcp.CookieLifeNs {
			if half, ok := p.syns.cookie(p.now, id, s); ok {
				return p.complete(l, b, id, &half, payload)
			}
			p.n.CookiesBad++
		}
		p.n.TCP[tcp.DropNoConn]++
		return p.tx.reset(p.now, b, src, id, s)
	case s.Flags&(tcp.SYN|tcp.FIN) == tcp.SYN: // third, a SYN; with FIN it is no request but a probe
		return p.passiveOpen(l, b, src, id, s, p.secret.initialSeq(p.now, id))
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
	if p.peers.closed(&id.Remote) && !p.peers.silentElsewhere(&id.Remote) {
		p.n.Own[DropPeerMax]++
		return true
	}
	half := tcp.NewHalf(iss, p.secret.timestampOffset(id), s)
	if l.halfOpen >= l.backlog || p.syns.full() {
		p.n.Own[DropBacklogFull]++
		if !p.cfg.NoSynCookies {
			return p.syns.sendCookie(p.now, l, b, src, id, s.Seq, &half)
		}
		if l.oldest == noConn { // other listeners' fill the cache
			return true
		}
		p.syns.drop(l.oldest)
	}
	p.n.HalfOpened++
	return p.syns.synAck(p.now, p.syns.add(l, id, &half, src), b, true)
}

// inputSyn gives a segment to a half-open connection.
func (p *Poller) inputSyn(i connIndex, b mem.Buf, src inet.MAC, s *tcp.Segment,
	payload []byte) bool {
	e := &p.syns.entries[i]
	switch e.half.Judge(p.memory.Config(), s) {
	case tcp.HalfAgain:
		p.n.TCP[tcp.DropDuplicate]++
		return p.syns.synAck(p.now, i, b, false)
	case tcp.HalfReset:
		p.n.TCP[tcp.DropAckUnsent]++
		return p.tx.reset(p.now, b, src, &e.id, s)
	case tcp.HalfForget:
		p.syns.drop(i)
		return true
	case tcp.HalfRenew:
		l, id := e.listener, e.id
		p.syns.drop(i)
		return p.passiveOpen(l, b, src, &id, s, p.secret.initialSeq(p.now, &id))
	case tcp.HalfOpen:
		l, id, half := e.listener, e.id, e.half
		full, why := !p.slab.slotFree() && p.peers.silent.first == noConn, DropConnMax
		if !full {
			if full, why = p.peers.closed(&id.Remote), DropPeerMax; full {
				p.peers.askForPlace(&id.Remote)
			}
		}
		if full { // the SYN,ACK's timer goes on, and so do the peer's ACKs
			e.full = true
			p.n.Own[why]++
			return true
		}
		p.syns.drop(i)
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
		p.peers.askForPlace(&id.Remote)
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
	p.paths.limit(c)
	p.rx.segment(b, payload)
	return p.input(c)
}
