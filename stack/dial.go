package stack

import (
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/tcp"
)

// Dial starts an active open from the address that the way to remote suggests (RFC 9293 MUST-44). Poller goroutine. On
// error u is told nothing; else its first call is Established, or Closed with ErrRefused, ErrTimeout, ErrNoRoute (the next
// hop did not answer), ErrReset, ErrAborted, ErrStopped. An impossible address (RFC 9293 MUST-46), no route, no address
// of ours that may be used yet, no slot and no free port are errors at once.
func (p *Poller) Dial(remote netip.AddrPort, u Upper) (*Conn, error) {
	return p.DialFrom(netip.Addr{}, remote, u)
}

// DialFrom is Dial from a given address of ours (RFC 9293 MUST-43); the zero netip.Addr leaves the choice.
func (p *Poller) DialFrom(local netip.Addr, remote netip.AddrPort, u Upper) (*Conn, error) {
	if u == nil {
		panic("stack: Dial without an Upper")
	}
	if p.stopped || p.stopping.Load() {
		return nil, ErrStopped
	}
	a := remote.Addr().Unmap()
	if !a.IsValid() || a.Is6() && !p.host.ip6 || remote.Port() == 0 {
		return nil, fmt.Errorf("stack: dial %v: want an address of a family we have, and a port", remote)
	}
	id := tcp.ID{Remote: inet.AddrFrom(a), RemotePort: remote.Port()}
	if !p.possible(&id.Remote) {
		return nil, fmt.Errorf("stack: dial %v: not a host's address", remote)
	}
	if p.isLocal(&id.Remote) {
		return nil, fmt.Errorf("stack: dial %v: own address, %w", remote, ErrNoRoute)
	}
	hop, ok := p.route(id.Remote)
	if !ok {
		return nil, fmt.Errorf("stack: dial %v: not on %v and no gateway, %w", remote, p.cfg.Addr.Masked(), ErrNoRoute)
	}
	if err := p.choose(&id, local.Unmap(), hop); err != nil {
		return nil, fmt.Errorf("stack: dial %v: %w", remote, err)
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
	p.limitPath(c)
	p.touch(c)
	return c, nil
}

// choose fills in id's local address.
func (p *Poller) choose(id *tcp.ID, local netip.Addr, hop inet.Addr) (err error) {
	if !local.IsValid() {
		var ok bool
		if id.Local, ok = p.source(id.Remote, hop); !ok {
			return fmt.Errorf("no address of its family has been found to be free yet, %w", ErrNoRoute)
		}
		return nil
	}
	id.Local = inet.AddrFrom(local)
	if !p.isLocal(&id.Local) || local.Is4() != id.Remote.Is4() {
		return fmt.Errorf("from %v: not an address of ours in use, or of another family", local)
	}
	return nil
}
