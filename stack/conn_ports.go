package stack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
)

// ends are the local addresses that a passive open takes, or for which a port is held.
type ends struct {
	addr inet.Addr // one, unless all
	all  bool      // of the families
	ip4  bool
	ip6  bool
}

// endsOf is what a stands for: one address, 0.0.0.0 all of IPv4, :: all of IPv6, the zero Addr
// both.
func endsOf(a netip.Addr) ends {
	a = a.Unmap()
	if !a.IsValid() {
		return ends{all: true, ip4: true, ip6: true}
	}
	e := ends{all: a.IsUnspecified(), ip4: a.Is4(), ip6: a.Is6()}
	if !e.all {
		e.addr = inet.AddrFrom(a)
	}
	return e
}

// take says whether a is one of them.
func (e *ends) take(a *inet.Addr) bool {
	if !e.all {
		return e.addr == *a
	}
	return e.ip4 && e.ip6 || e.ip4 == a.Is4()
}

// meet says whether e and o have an address in common.
func (e *ends) meet(o *ends) bool {
	switch {
	case !e.all:
		return o.take(&e.addr)
	case !o.all:
		return e.take(&o.addr)
	}
	return e.ip4 && o.ip4 || e.ip6 && o.ip6
}

// Hold takes a local port for a ListenAt or a DialHeld to come, and returns it: local's, or one of
// Config.DialPorts where that is 0. Until Release no Dial chooses it, and it is ErrPortUsed for
// others that name it. It may be held several times: those that hold a port divide its addresses
// and remote ends between them. local's address is as in ListenAt. Poller goroutine. Errors:
// ErrStopped; ErrNotLocal; ErrPortUsed, where a passive open takes connections to such an address,
// or no port is left.
func (p *Poller) Hold(local netip.AddrPort) (port uint16, err error) {
	at := endsOf(local.Addr())
	switch port = local.Port(); {
	case p.stopped || p.control.stopping.Load():
		return 0, ErrStopped
	case !at.all && p.host.Find(&at.addr) == nil:
		return 0, fmt.Errorf("stack: hold %v: %w", local, ErrNotLocal)
	case port == 0:
		if port = p.ports.unused(); port == 0 {
			return 0, fmt.Errorf("stack: hold: all %d local ports, %w", p.ports.dial.count(), ErrPortUsed)
		}
	case p.ports.like(&at, port) != nil:
		return 0, fmt.Errorf("stack: hold port %d: %w", port, ErrPortUsed)
	}
	p.ports.hold(port)
	return port, nil
}

// Release undoes a Hold. Poller goroutine.
func (p *Poller) Release(port uint16) { p.ports.release(port) }

// ports are the local TCP ports: which are listened at, which are held, and which a dial tries
// next. It knows no connections: those that have a port towards one remote end stand in the lookup
// table.
type ports struct {
	dial      PortRange            // Config.DialPorts
	listeners map[uint16]*listener // the first of each port
	held      map[uint16]int       // how often
	next      uint32               // of those that dials try
}

func newPorts(cfg *Config) ports {
	return ports{
		dial: cfg.DialPorts, listeners: make(map[uint16]*listener), held: make(map[uint16]int),
	}
}

// listener is the passive open that takes connections to a's port, or nil.
func (p *ports) listener(a *inet.Addr, port uint16) *listener {
	l := p.listeners[port]
	for l != nil && !l.take(a) {
		l = l.next
	}
	return l
}

// like is a passive open of the port that has an address in common with at, or nil.
func (p *ports) like(at *ends, port uint16) *listener {
	l := p.listeners[port]
	for l != nil && !l.meet(at) {
		l = l.next
	}
	return l
}

// exactly is the passive open of the port at just those addresses, or nil.
func (p *ports) exactly(at *ends, port uint16) *listener {
	l := p.listeners[port]
	for l != nil && l.ends != *at {
		l = l.next
	}
	return l
}

// any is some passive open, or nil.
func (p *ports) any() *listener {
	for _, l := range p.listeners {
		return l
	}
	return nil
}

// add has l take connections to its port.
func (p *ports) add(l *listener) {
	l.next = p.listeners[l.port]
	p.listeners[l.port] = l
}

func (p *ports) forget(l *listener) {
	first := p.listeners[l.port]
	if first != l {
		for first.next != l {
			first = first.next
		}
		first.next = l.next
	} else if l.next != nil {
		p.listeners[l.port] = l.next
	} else {
		delete(p.listeners, l.port)
	}
}

func (p *ports) hold(port uint16) { p.held[port]++ }

func (p *ports) release(port uint16) {
	if p.held[port]--; p.held[port] <= 0 {
		delete(p.held, port)
	}
}

// isHeld says whether somebody holds the port.
func (p *ports) isHeld(port uint16) bool { return p.held[port] > 0 }

// free says that the port is neither listened at nor held.
func (p *ports) free(port uint16) bool { return p.listeners[port] == nil && !p.isHeld(port) }

// tryNext is the port that a dial is to try next, for a remote end that has this offset (RFC 6056
// section 3.3.3).
func (p *ports) tryNext(offset uint32) uint16 {
	port := p.dial.First + uint16((offset+p.next)%p.dial.count())
	p.next++
	return port
}

// unused is one of Config.DialPorts that is neither listened on nor held; 0: there is none. It
// begins anywhere (RFC 6056 section 3.3.1).
func (p *ports) unused() uint16 {
	count := p.dial.count()
	offset := rand.Uint32N(count)
	for n := range count {
		port := p.dial.First + uint16((offset+n)%count)
		if p.free(port) {
			return port
		}
	}
	return 0
}

func (r PortRange) count() uint32 { return uint32(r.Last-r.First) + 1 }
