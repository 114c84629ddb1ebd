package stack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/tcp"
)

// Dial starts an active open from the address that the way to remote suggests (RFC 9293 MUST-44).
// Poller goroutine. On error u is told nothing; else its first call is Established, or Closed with
// ErrRefused, ErrTimeout, ErrNoRoute (the next hop did not answer), ErrReset, ErrAborted,
// ErrStopped. An impossible address (RFC 9293 MUST-46) and no way to it (ErrNetUnreachable), no
// slot (ErrConnMax) and no free port (ErrPortUsed) are errors at once. So is an address of ours
// that another host has (*AddrError, ErrNoRoute), or that is still being checked (ErrTentative):
// UntilChecked tries again. stream.Dial and rnic's Connect do, and wait.
func (p *Poller) Dial(remote netip.AddrPort, u Upper) (*Conn, error) {
	return p.DialFrom(netip.AddrPort{}, remote, u)
}

// DialFrom is Dial from a given address of ours (RFC 9293 MUST-43), a given port, or both; what is
// zero is chosen. An address that is not ours is ErrNotLocal. A port is ErrPortUsed where it is
// listened on, or held, or a connection to the same remote end has it; one that has been in
// TIME-WAIT for a second gives way (RFC 7323 section 5.4), as for a port that is chosen. In a Group
// it is ErrOtherMember when the 4-tuple belongs to another Poller: dial there.
func (p *Poller) DialFrom(local, remote netip.AddrPort, u Upper) (*Conn, error) {
	if p.ports.isHeld(local.Port()) {
		return nil, fmt.Errorf("stack: dial %v: from port %d, which is held: %w", remote, local.Port(),
			ErrPortUsed)
	}
	return p.DialHeld(local, remote, u)
}

// DialHeld is DialFrom for the one that has the port from Hold. A connection in TIME-WAIT gives way
// at once if it had timestamps.
func (p *Poller) DialHeld(local, remote netip.AddrPort, u Upper) (*Conn, error) {
	if u == nil {
		panic("stack: Dial without an Upper")
	}
	if p.stopped || p.control.stopping.Load() {
		return nil, ErrStopped
	}
	if from := inet.AddrFrom(local.Addr().Unmap()); local.Addr().IsValid() && !p.host.IsLocal(&from) {
		return nil, fmt.Errorf("stack: dial %v: from %v: %w", remote, local, whyUnused(p.host, &from))
	}
	a := remote.Addr().Unmap()
	if !a.IsValid() || a.Is6() && !p.host.HasIPv6() || remote.Port() == 0 {
		return nil, fmt.Errorf("stack: dial %v: want an address of a family we have, and a port, %w",
			remote, ErrNetUnreachable)
	}
	id := tcp.ID{Remote: inet.AddrFrom(a), RemotePort: remote.Port()}
	if !p.host.Possible(&id.Remote) {
		return nil, fmt.Errorf("stack: dial %v: not a host's address, %w", remote, ErrNetUnreachable)
	}
	if p.host.IsLocal(&id.Remote) {
		return nil, fmt.Errorf("stack: dial %v: own address, %w", remote, ErrNoRoute)
	}
	hop, ok := p.host.Route(p.now, id.Remote)
	if !ok {
		return nil, fmt.Errorf("stack: dial %v: not on %v and no gateway, %w", remote,
			p.cfg.Addr.Masked(), ErrNetUnreachable)
	}
	if err := chooseSource(p.host, &id, local.Addr().Unmap(), hop); err != nil {
		return nil, fmt.Errorf("stack: dial %v: %w", remote, err)
	}
	beyond, reused, err := p.choosePort(&id, local.Port())
	if err != nil {
		return nil, fmt.Errorf("stack: dial %v: %w", remote, err)
	}
	home := p.host.Use(p.now, &id.Local)
	if home == nil {
		_, err := noSource(p.host, &id.Remote)
		return nil, fmt.Errorf("stack: dial %v: %w", remote, err)
	}
	c := p.takeConn(&id, hop, home)
	if c == nil {
		p.n.Own[DropConnMax]++
		return nil, ErrConnMax
	}
	iss := p.secret.initialSeq(p.now, &id)
	if reused && iss.Less(beyond) {
		iss = beyond
	}
	c.upper = u
	c.tcp.Connect(p.now, id, iss, p.secret.timestampOffset(&id))
	p.paths.limit(c)
	p.active.add(c)
	return c, nil
}

// SourceFor is the local address that Dial would choose towards remote, one that is still being
// checked too. Poller goroutine. Errors: ErrNetUnreachable, ErrNoRoute, *AddrError.
func (p *Poller) SourceFor(remote netip.Addr) (netip.Addr, error) {
	id := tcp.ID{Remote: inet.AddrFrom(remote.Unmap())}
	hop, ok := p.host.Route(p.now, id.Remote)
	if !ok || !p.host.Possible(&id.Remote) {
		return netip.Addr{}, fmt.Errorf("stack: source for %v: %w", remote, ErrNetUnreachable)
	}
	err := chooseSource(p.host, &id, netip.Addr{}, hop)
	if err != nil && !errors.Is(err, ErrTentative) {
		return netip.Addr{}, fmt.Errorf("stack: source for %v: %w", remote, err)
	}
	return id.Local.Netip(), nil
}

// chooseSource fills in id's local address, also with one that is ErrTentative.
func chooseSource(h *iphost.Host, id *tcp.ID, local netip.Addr, hop inet.Addr) (err error) {
	if !local.IsValid() {
		var ok bool
		if id.Local, ok = h.Source(id.Remote, hop); ok && iphost.InScope(&id.Local, &id.Remote) {
			return nil
		}
		for i := range h.Addrs() { // one that will do better, or do at all
			l := &h.Addrs()[i]
			if l.State == AddrTentative && l.Addr.Is4() == id.Remote.Is4() &&
				iphost.InScope(&l.Addr, &id.Remote) {
				id.Local = l.Addr
				return fmt.Errorf("from %v: %w", l.Addr.Netip(), ErrTentative)
			}
		}
		if !ok {
			id.Local, err = noSource(h, &id.Remote)
			return err
		}
		return nil
	}
	id.Local = inet.AddrFrom(local)
	if local.Is4() != id.Remote.Is4() {
		return fmt.Errorf("from %v, of another family: %w", local, ErrNotLocal)
	}
	return nil
}

// whyUnused is why a, which is not in use, is not.
func whyUnused(h *iphost.Host, a *inet.Addr) error {
	if l := h.Find(a); l != nil {
		return ErrTentative
	}
	return ErrNotLocal
}

// noSource is why no address of ours can speak to remote, and the one that will.
func noSource(h *iphost.Host, remote *inet.Addr) (inet.Addr, error) {
	for i := range h.Addrs() {
		l := &h.Addrs()[i]
		switch {
		case l.Addr.Is4() != remote.Is4():
		case l.State == AddrTentative: // of another scope
			return l.Addr, fmt.Errorf("from %v: %w", l.Addr.Netip(), ErrTentative)
		case l.State == AddrDuplicate:
			return inet.Addr{}, fmt.Errorf("%w, %w", &AddrError{l.Addr.Netip(), l.Rival}, ErrNoRoute)
		}
	}
	return inet.Addr{}, fmt.Errorf("we have no address of its family, %w", ErrNoRoute)
}

// choosePort fills in id's local port, the one that is given or a free one. reused: our sequence
// numbers must begin at beyond or later.
func (p *Poller) choosePort(id *tcp.ID, given uint16) (beyond tcp.Seq, reused bool, err error) {
	if given == 0 {
		beyond, reused, ok := p.ephemeralPort(id)
		if !ok {
			return 0, false, fmt.Errorf("all %d local ports, %w", p.ports.dial.count(), ErrPortUsed)
		}
		return beyond, reused, nil
	}
	id.LocalPort = given
	if p.member.owner(id) != p.cfg.Member {
		return 0, false, ErrOtherMember
	}
	beyond, reused, ok := p.claimPort(id)
	if !ok {
		return 0, false, fmt.Errorf("from port %d: %w", given, ErrPortUsed)
	}
	return beyond, reused, nil
}

// The dynamic ports of RFC 6335 section 6.
const (
	portFirst = 49152
	portLast  = 65535
)

// ephemeralPort chooses id's local port: Simple Hash-Based Port Selection, RFC 6056 section 3.3.3.
// ok is false when every port is in use towards this remote end. One in TIME-WAIT counts as free
// when tcp.Conn.Redialable says so (reused): our sequence numbers must then begin at beyond or
// later.
func (p *Poller) ephemeralPort(id *tcp.ID) (beyond tcp.Seq, reused, ok bool) {
	id.LocalPort = 0
	offset := uint32(p.secret.tuple(usePort, id))
	for range p.ports.dial.count() {
		id.LocalPort = p.ports.tryNext(offset)
		if !p.ports.free(id.LocalPort) || p.member.owner(id) != p.cfg.Member {
			continue
		}
		if beyond, reused, ok = p.claimPort(id); ok {
			return beyond, reused, true
		}
	}
	return 0, false, false
}

// claimPort says whether id's local port is free towards its remote end; one in TIME-WAIT is made
// so when it may be.
func (p *Poller) claimPort(id *tcp.ID) (beyond tcp.Seq, reused, ok bool) {
	if p.ports.listener(&id.Local, id.LocalPort) != nil {
		return 0, false, false
	}
	i := p.table.find(id)
	if i == noConn {
		return 0, false, true
	}
	c := &p.slab.conns[i]
	held := p.ports.isHeld(id.LocalPort) // by the caller
	if c.phase != phaseLingering || !c.tcp.Redialable(p.now) && !(held && c.tcp.RedialableHeld()) {
		return 0, false, false
	}
	beyond = c.tcp.SndNxt() + 1
	p.n.TimeWaitCut++
	p.cutTimeWait(c)
	return beyond, true, true
}
