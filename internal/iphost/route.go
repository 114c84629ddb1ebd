package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// rerouteNs is how often RoutesChanged is told at most: the caller looks at all connections, and
// anybody on the link can send advertisements.
const rerouteNs = second

// Route is the next hop towards a: a itself when it is on-link, else a gateway (RFC 1122 section
// 3.3.1.1).
func (h *Host) Route(now int64, a inet.Addr) (inet.Addr, bool) { return h.routes.Lookup(now, a) }

// IsDead says whether hop is a gateway that does not answer, or no gateway.
func (h *Host) IsDead(now int64, hop inet.Addr) bool { return h.routes.IsDead(now, hop) }

// Lost says that hop does not answer. If it is a gateway, the connections that went through it take
// another route (RFC 1122 section 3.3.1.4), at once.
func (h *Host) Lost(now int64, hop inet.Addr) {
	if h.routes.Dead(now, hop) {
		h.reroutes.did(now)
		h.news |= RoutesChanged
	}
}

// rerouteSoon has RoutesChanged told.
func (h *Host) rerouteSoon(now int64) {
	h.reroutes.want(now, rerouteNs)
	h.schedule(now)
}

// HopLimit is that of what we send to dst.
func (h *Host) HopLimit(dst *inet.Addr) uint8 {
	if dst.Is4() {
		return h.cfg.TTL
	}
	return h.hopLimit6
}

// MTUTo is the path MTU to dst as far as it is known.
func (h *Host) MTUTo(dst inet.Addr) int { return h.paths.Get(dst, h.LinkMTU(&dst)) }

// LinkMTU is the largest packet that the link takes to dst.
func (h *Host) LinkMTU(dst *inet.Addr) int {
	if dst.Is4() {
		return h.cfg.MTU
	}
	return h.mtu6
}

// LowerPath takes a path MTU to dst.
func (h *Host) LowerPath(now int64, dst inet.Addr, mtu int) {
	h.paths.Lower(now, dst, mtu, h.LinkMTU(&dst))
	h.pathsSeen++
	h.schedule(now)
}

// PathsChanged is how often MTUTo may have begun to give another answer for some destination.
func (h *Host) PathsChanged() uint32 { return h.pathsSeen }
