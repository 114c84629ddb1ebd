package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// route is the next hop towards a: a itself when it is on-link, else a gateway (RFC 1122 section
// 3.3.1.1).
func (p *Poller) route(a inet.Addr) (inet.Addr, bool) { return p.host.routes.Lookup(p.now, a) }

// routesChanged has connections look at the routes again, soon, but not more than once in
// rerouteNs: that looks at all connections, and anybody on the link can send advertisements.
func (p *Poller) routesChanged() {
	p.host.routesLate = true
	p.schedule()
}

// schedule computes when housekeep is due.
func (p *Poller) schedule() {
	h := &p.host
	at := min(h.routes.Deadline(), h.paths.Deadline(), h.fragments.Deadline(), h.rsAt, h.linkAt,
		max(h.listener.Deadline(), h.listenAt))
	if h.routesLate {
		at = min(at, h.rerouteAt)
	}
	for i := range h.local {
		l := &h.local[i]
		if l.defend {
			at = min(at, max(h.quietTo, p.now))
		}
		if l.step != stepNone {
			at = min(at, p.stepAt(l))
		}
	}
	h.dueAt = at
}

// stepAt is when the next step of l may be taken.
func (p *Poller) stepAt(l *localAddr) int64 {
	if l.step == stepAnnounce {
		return max(l.at, p.host.quietTo)
	}
	return l.at
}

// mtuTo is the path MTU to dst as far as it is known.
func (p *Poller) mtuTo(dst inet.Addr) int { return p.host.paths.Get(dst, p.linkMTU(&dst)) }

// linkMTU is the largest packet that the link takes to dst.
func (p *Poller) linkMTU(dst *inet.Addr) int {
	if dst.Is4() {
		return p.cfg.MTU
	}
	return p.host.mtu6
}

// ipLen is the length of the IP header towards dst.
func ipLen(dst *inet.Addr) int {
	if dst.Is4() {
		return inet.IPv4Len
	}
	return inet.IPv6Len
}
