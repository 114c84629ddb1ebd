package stack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// AddrStatus is the state of an address of ours.
type AddrStatus struct {
	Addr      netip.Addr
	State     AddrState
	Conflicts uint64   // packets of other hosts that claimed it
	Rival     inet.MAC // of the host that sent the last of them
}

// LinkUp says that the device has been connected: a cable, a bridge. The addresses are checked
// again (while they are used, where they were in use) and announced, so that stations which were
// told nothing, or something else, learn where we are. Several calls within a second count as one.
// Any goroutine; each Poller of a Group must be told. Errors: as Submit.
func (p *Poller) LinkUp() error { return p.Submit(p.linkUp) }

// AddAddr adds an address with its prefix, as in Config.Addrs: it is checked, announced and then
// used. With the first one of IPv6 comes a link-local one. Errors: no unicast address, ours
// already, too many. Poller goroutine (Submit); of a Group each Poller is to be given it.
func (p *Poller) AddAddr(prefix netip.Prefix) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("stack: poller %q: "+format, append([]any{p.cfg.Name}, args...)...)
	}
	if p.stopped {
		return ErrStopped
	}
	if err := p.cfg.checkAddr(prefix); err != nil {
		return bad("%w", err)
	}
	added := []netip.Prefix{prefix}
	if a := prefix.Addr(); a.Is6() && !p.host.ip6 && !a.IsLinkLocalUnicast() {
		added = append(added, netip.PrefixFrom(inet.LinkLocal(p.mac).Netip(), 64))
	}
	a := inet.AddrFrom(prefix.Addr())
	if slices.ContainsFunc(p.host.local, func(l localAddr) bool { return l.addr == a }) {
		return bad("address %v is ours already", prefix.Addr())
	}
	if len(p.host.local)+len(added) > addrsMax {
		return bad("address %v: %d addresses are all there can be", prefix.Addr(), addrsMax)
	}
	if p.host.routes.Room() < len(added) { // all of them or none
		return bad("address %v: %d routes are all there can be", prefix.Addr(), inet.RoutesMax)
	}
	for _, x := range added {
		p.host.addAddr(&p.cfg, p.now, &p.secret, x)
	}
	p.schedule()
	return nil
}

// RemoveAddr takes an address of ours away, except Config.Addr; its connections are reset,
// half-open ones too, and end with ErrAddrRemoved. Poller goroutine (Submit); of a Group each
// Poller is to be told.
func (p *Poller) RemoveAddr(addr netip.Addr) error {
	a := inet.AddrFrom(addr)
	i := slices.IndexFunc(p.host.local, func(l localAddr) bool { return l.addr == a })
	if i <= 0 {
		return fmt.Errorf("stack: poller %q: address %v is none of ours, or the first, which stays",
			p.cfg.Name, addr)
	}
	for j := range p.slab.conns {
		if c := &p.slab.conns[j]; c.phase != phaseFree && c.tcp.ID().Local == a {
			p.abort(c, whyAddrRemoved)
		}
	}
	p.dropSynsOf(&a)
	p.host.removeAddr(&p.cfg, p.now, i)
	p.routesChanged()
	p.tellWaiters()
	p.schedule()
	return nil
}

// Addrs says what has become of our addresses, Config.Addr first. Any goroutine but the Poller's;
// it waits until ctx ends.
func (p *Poller) Addrs(ctx context.Context) ([]AddrStatus, error) {
	all := make(chan []AddrStatus, 1)
	if err := p.Submit(func() { all <- p.addrs() }); err != nil {
		return nil, err
	}
	select {
	case s := <-all:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Poller) addrs() []AddrStatus {
	all := make([]AddrStatus, 0, len(p.host.local))
	for i := range p.host.local {
		l := &p.host.local[i]
		all = append(all, AddrStatus{Addr: l.addr.Netip(), State: l.state, Conflicts: l.conflicts,
			Rival: l.rival})
	}
	return all
}

// AwaitAddrs returns when no address is being checked any more, or ctx ends. Its error has an
// *AddrError for each address that another host has. Any goroutine but the Poller's. ErrConnMax,
// ErrBusy, ErrStopped: as UntilChecked and Submit.
func (p *Poller) AwaitAddrs(ctx context.Context) error {
	settled, refused := make(chan []AddrStatus, 1), make(chan error, 1)
	if err := p.Submit(func() {
		if err := p.UntilChecked(func() (again bool) {
			switch {
			case p.stopped || ctx.Err() != nil: // nobody listens
				return false
			case p.tentatives() > 0:
				return true
			}
			settled <- p.addrs()
			return false
		}); err != nil {
			refused <- err
		}
	}); err != nil {
		return err
	}
	var all []AddrStatus
	select {
	case all = <-settled:
	case err := <-refused:
		return err
	case <-p.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	for i := range all {
		if all[i].State == AddrDuplicate {
			err = errors.Join(err, &AddrError{all[i].Addr, all[i].Rival})
		}
	}
	return err
}

// UntilChecked calls try, and calls it again after each change to one of our addresses, until it
// returns false. It is for what has to wait until an address is free to use: a Dial that fails with
// ErrTentative. The Poller's end is such a change; try then finds ErrStopped. Poller goroutine, as
// are the calls. ErrConnMax: as many wait as there may be connections, and try is not called again.
func (p *Poller) UntilChecked(try func() (again bool)) error {
	if !try() {
		return nil
	}
	if len(p.host.waiters) >= p.cfg.ConnsMax {
		p.tellWaiters() // some have given up
	}
	if len(p.host.waiters) >= p.cfg.ConnsMax {
		p.n.Own[DropConnMax]++
		return ErrConnMax
	}
	p.host.waiters = append(p.host.waiters, try)
	return nil
}
