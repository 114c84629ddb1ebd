package engine

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// serviceStacks are the ports of RDMA_PS_UDP over our own stack, by number: several of one number
// have different addresses. The goroutine that drives datagrams has them.
type serviceStacks struct {
	engine *Engine
	ports  map[uint16][]*serviceStack
}

// serviceStack is one of them.
type serviceStack struct {
	port   *servicePort
	all    *serviceStacks
	opt    rnic.BindOptions
	remote netip.AddrPort // of connect
}

const (
	portFree    = 49152 // the first of those that nobody has asked for
	portFreeMax = 1 << 14
)

// open has p over our own stack.
func (a *serviceStacks) open(p *servicePort, at netip.AddrPort, opt rnic.BindOptions) (err error) {
	p.engine.whenUDQuiet(func() {
		a.engine = p.engine
		ip := at.Addr().Unmap().WithZone("")
		local := stack.Addr(netip.IPv6Unspecified().As16())
		if at.Addr().IsValid() {
			local = stack.Addr(ip.As16())
		}
		if at.Addr().IsValid() && !ip.IsUnspecified() && !a.engine.poller.IsLocal(&local) {
			err = fmt.Errorf("%v: %w", ip, stack.ErrNotLocal)
			return
		}
		s := &serviceStack{port: p, all: a, opt: opt}
		p.at = netip.AddrPortFrom(netip.AddrFrom16(local).Unmap(), at.Port())
		if at.Port() != 0 {
			err = a.enter(s, at.Port())
			return
		}
		from := rand.IntN(portFreeMax)
		for i := range portFreeMax {
			if err = a.enter(s, uint16(portFree+(from+i)%portFreeMax)); err == nil {
				return
			}
		}
	})
	return err
}

// enter takes a port for s.
func (a *serviceStacks) enter(s *serviceStack, port uint16) error {
	others := a.ports[port]
	for _, o := range others {
		if s.conflicts(o) {
			return stack.ErrPortUsed
		}
	}
	if len(others) == 0 {
		if err := a.engine.poller.ListenUDP(port, a); err != nil {
			return err
		}
	}
	if a.ports == nil {
		a.ports = map[uint16][]*serviceStack{}
	}
	a.ports[port] = append(others, s)
	s.port.at = netip.AddrPortFrom(s.port.at.Addr(), port)
	s.port.carrier = s
	return nil
}

// has says whether what comes to an address is for s, and whether for no other.
func (s *serviceStack) has(a netip.Addr) (has, alone bool) {
	at := s.port.at.Addr()
	switch {
	case at == a:
		return true, !at.IsUnspecified()
	case !at.IsUnspecified():
		return false, false
	}
	return at.Is4() == a.Is4() || at.Is6() && !s.opt.V6Only, false
}

func (s *serviceStack) conflicts(o *serviceStack) bool {
	if s.opt.Shared && o.opt.Shared {
		return false
	}
	one, _ := s.has(o.port.at.Addr())
	other, _ := o.has(s.port.at.Addr())
	return one || other
}

// at is who has an address and a port.
func (a *serviceStacks) at(to netip.AddrPort, from netip.AddrPort) (best *servicePort) {
	rank := 0
	for _, s := range a.ports[to.Port()] {
		has, alone := s.has(to.Addr())
		r := 0
		switch {
		case !has || s.remote.IsValid() && s.remote != from:
			continue
		case s.remote.IsValid():
			r = 3
		case alone:
			r = 2
		default:
			r = 1
		}
		if r >= rank {
			best, rank = s.port, r
		}
	}
	return best
}

// ends are the two ends of a datagram, whichever way it goes.
func ends(d *stack.Datagram) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(netip.AddrFrom16(d.Local).Unmap(), d.LocalPort),
		netip.AddrPortFrom(netip.AddrFrom16(d.Remote).Unmap(), d.RemotePort)
}

// Datagram implements stack.DatagramReceiver.
func (a *serviceStacks) Datagram(d *stack.Datagram) {
	local, remote := ends(d)
	if p := a.at(local, remote); p != nil {
		p.receive(local, remote, d.Octets)
	}
}

// Unreachable implements stack.DatagramReceiver.
func (a *serviceStacks) Unreachable(d *stack.Datagram) {
	local, remote := ends(d)
	if p := a.at(local, remote); p != nil {
		p.refuse(remote)
	}
}

// connect implements serviceCarrier.
func (s *serviceStack) connect(remote netip.AddrPort) error {
	s.all.engine.whenUDQuiet(func() { s.remote = bare(remote) })
	return nil
}

// bare is an address as our own stack has it.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// send implements serviceCarrier. What is for ourselves does not leave the process.
func (s *serviceStack) send(local, remote netip.AddrPort, b []byte) {
	local, remote = bare(local), bare(remote)
	d := stack.Datagram{Local: local.Addr().As16(), LocalPort: s.port.at.Port(),
		Remote: remote.Addr().As16(), RemotePort: remote.Port()}
	if !s.all.engine.poller.IsLocal(&d.Remote) {
		s.all.engine.poller.SendUDP(&d, [][]byte{b})
		return
	}
	local = netip.AddrPortFrom(local.Addr(), d.LocalPort)
	if p := s.all.at(remote, local); p != nil {
		p.receive(remote, local, b)
	} else {
		s.port.refuse(remote)
	}
}

func (s *serviceStack) share() error {
	s.all.engine.whenUDQuiet(func() { s.opt.Shared = true })
	return nil
}

func (s *serviceStack) close() {
	s.all.engine.whenUDQuiet(func() {
		port := s.port.at.Port()
		rest := slices.DeleteFunc(s.all.ports[port], func(o *serviceStack) bool { return o == s })
		if s.all.ports[port] = rest; len(rest) == 0 {
			delete(s.all.ports, port)
			s.all.engine.poller.CloseUDP(port)
		}
	})
}
