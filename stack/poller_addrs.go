package stack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

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
func (p *Poller) LinkUp() error { return p.Submit(func() { p.host.LinkUp(p.now) }) }

// AddAddr adds an address with its prefix, as in Config.Addrs: it is checked, announced and then
// used. With the first one of IPv6 comes a link-local one. Errors: no unicast address, ours
// already, too many. Poller goroutine (Submit); of a Group each Poller is to be given it.
func (p *Poller) AddAddr(prefix netip.Prefix) error {
	if p.stopped {
		return ErrStopped
	}
	if err := p.host.Add(p.now, prefix); err != nil {
		return fmt.Errorf("stack: poller %q: %w", p.cfg.Name, err)
	}
	return nil
}

// RemoveAddr takes an address of ours away, except Config.Addr; its connections are reset,
// half-open ones too, and end with ErrAddrRemoved. Poller goroutine (Submit); of a Group each
// Poller is to be told.
func (p *Poller) RemoveAddr(addr netip.Addr) error {
	a := inet.AddrFrom(addr)
	if !p.host.CanRemove(a) {
		return fmt.Errorf("stack: poller %q: address %v is none of ours, or the first, which stays",
			p.cfg.Name, addr)
	}
	for j := range p.slab.conns {
		if c := &p.slab.conns[j]; c.phase != phaseFree && c.tcp.ID().Local == a {
			c.abort(whyAddrRemoved)
		}
	}
	p.syns.dropOf(p.now, &a)
	p.host.Remove(p.now, a)
	p.heedHost()
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
	all := make([]AddrStatus, 0, len(p.host.Addrs()))
	for i := range p.host.Addrs() {
		l := &p.host.Addrs()[i]
		all = append(all, AddrStatus{
			Addr: l.Addr.Netip(), State: l.State, Conflicts: l.Conflicts, Rival: l.Rival,
		})
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
			case p.host.Tentatives() > 0:
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
	if !p.addrWaiters.add(try, p.cfg.ConnsMax) {
		p.n.Own[DropConnMax]++
		return ErrConnMax
	}
	return nil
}
