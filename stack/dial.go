package stack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/tcp"
)

// Dial starts an active open. Poller goroutine. On error u is told nothing; else its first call is Established, or
// Closed with ErrRefused, ErrTimeout, ErrNoRoute (the next hop did not answer ARP), ErrReset, ErrAborted, ErrStopped.
// An impossible address (RFC 9293 MUST-46), no route, no slot and no free port are errors at once.
func (p *Poller) Dial(remote netip.AddrPort, u Upper) (*Conn, error) {
	if u == nil {
		panic("stack: Dial without an Upper")
	}
	if p.stopped || p.stopping.Load() {
		return nil, ErrStopped
	}
	a := remote.Addr().Unmap()
	if !a.Is4() || remote.Port() == 0 {
		return nil, fmt.Errorf("stack: dial %v: want an IPv4 address and a port", remote)
	}
	id := tcp.ID{Local: p.addr, Remote: inet.AddrFrom(a), RemotePort: remote.Port()}
	if !p.possible(id.Remote) {
		return nil, fmt.Errorf("stack: dial %v: not a host's address", remote)
	}
	if id.Remote == p.addr {
		return nil, fmt.Errorf("stack: dial %v: own address, %w", remote, ErrNoRoute)
	}
	hop, ok := p.route(id.Remote)
	if !ok {
		return nil, fmt.Errorf("stack: dial %v: not on %v and no gateway, %w", remote, p.cfg.Addr.Masked(), ErrNoRoute)
	}
	beyond, reused, ok := p.ephemeralPort(&id)
	if !ok {
		return nil, fmt.Errorf("stack: dial %v: all %d local ports, %w", remote, portCount, ErrPortUsed)
	}
	c := p.takeConn(&id, hop)
	if c == nil {
		p.n.Own[DropConnMax]++
		return nil, ErrConnMax
	}
	if reused && c.iss.Less(beyond) {
		c.iss = beyond
	}
	c.upper = u
	c.tcp.Connect(p.now, id, c.iss, p.timestampOffset(&id))
	p.touch(c)
	return c, nil
}

// route is the next hop towards a: a itself when it is on-link, else the gateway (RFC 1122 section 3.3.1.1).
func (p *Poller) route(a inet.Addr) (inet.Addr, bool) {
	if p.cfg.Addr.Contains(a.Netip()) {
		return a, true
	}
	if p.cfg.Gateway.IsValid() {
		return inet.AddrFrom(p.cfg.Gateway), true
	}
	return inet.Addr{}, false
}

// possible says whether a can be one other host (RFC 1122 section 3.2.1.3): no group, no loopback, not "this network".
func (p *Poller) possible(a inet.Addr) bool {
	return a.Is4() && a.IsStation() && a != p.broadcast && a.As4()[0] != 0
}

// subnetBroadcast is the all-ones host of a prefix that has one (RFC 3021: a /31 has none).
func subnetBroadcast(prefix netip.Prefix) inet.Addr {
	if prefix.Bits() > 30 {
		return inet.Addr{}
	}
	b := prefix.Addr().As4()
	host := ^uint32(0) >> prefix.Bits()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|host)
	return inet.AddrFrom4(b)
}
