package iphost

import (
	"math"

	"github.com/rnicd/rnicd/internal/inet"
)

const (
	ndHopLimit = 255 // RFC 4861 section 3.1: no router can have passed it on

	// What a router may have us send at least: with 1 nothing would pass it (CVE-2015-2922). Paths
	// have some 20 hops.
	hopLimitMin = 32

	rsDelayNs = second     // MAX_RTR_SOLICITATION_DELAY
	rsRetryNs = 4 * second // RTR_SOLICITATION_INTERVAL
	rsMax     = 3          // MAX_RTR_SOLICITATIONS
)

// discover handles a message of neighbour discovery from the station at mac.
func (h *Host) discover(now int64, mac inet.MAC, ip *inet.IPv6, message []byte) inet.Drop {
	nd := &h.nd
	if drop := inet.ParseND(message, ip.Src, ip.Dst, ip.HopLimit, nd); drop != inet.DropNone {
		return drop
	}
	switch nd.Type {
	case inet.NDNeighbourSolicitation:
		return h.solicited(now, mac, ip, nd)
	case inet.NDNeighbourAdvert:
		return h.advertised(now, mac, nd)
	case inet.NDRouterAdvertisement:
		return h.router(now, ip, nd)
	}
	return inet.DropNotOurs // a Router Solicitation is for routers
}

// solicited answers for our addresses (RFC 4861 sections 7.2.3 and 7.2.4).
func (h *Host) solicited(now int64, src inet.MAC, ip *inet.IPv6, nd *inet.ND) inet.Drop {
	probe := ip.Src.IsUnspecified()
	l := h.Find(&nd.Target)
	switch {
	case l != nil && l.State == Tentative && probe:
		// Somebody else is about to take it (RFC 4862 section 5.4.3), unless the link gives us back
		// what we sent.
		if src != h.cfg.MAC {
			h.conflict(now, l, src)
		}
		return inet.DropSource
	case l != nil && probe && h.isEcho(now, l, src, l.shared.probedAt.Load()): // as probeEcho
		return inet.DropSource
	case l == nil || l.State == Tentative:
		return inet.DropNotOurs
	}
	to, mac := ip.Src, src
	if probe {
		to, mac = inet.AllNodes, inet.AllNodes.GroupMAC()
	} else if nd.HasMAC {
		h.neighbours.Solicit(now, ip.Src, nd.MAC)
		h.news |= NeighbourLearned
		mac = nd.MAC
	}
	if h.advertise(now, nd.Target, to, mac) {
		h.n.NDReplies++
	}
	return inet.DropNone
}

// Impostor handles an ICMPv6 message from an address of ours. If it is one of neighbour discovery,
// which no router can have passed on (it returns whether it is), the station at mac uses the
// address.
func (h *Host) Impostor(now int64, mac inet.MAC, ip *inet.IPv6, message []byte) bool {
	nd := &h.nd
	if inet.ParseND(message, ip.Src, ip.Dst, ip.HopLimit, nd) != inet.DropNone {
		return false
	}
	l := h.Find(&ip.Src)
	if l != nil && !h.isEcho(now, l, mac, l.shared.claimedAt.Load()) &&
		(nd.Type == inet.NDNeighbourSolicitation || nd.Type == inet.NDNeighbourAdvert) {
		h.conflict(now, l, mac)
	}
	return true
}

// advertised takes an answer, or the word of another host that an address of ours is its own (RFC
// 4862 section 5.4.4).
func (h *Host) advertised(now int64, src inet.MAC, nd *inet.ND) inet.Drop {
	if l := h.Find(&nd.Target); l != nil {
		if nd.HasMAC {
			src = nd.MAC
		}
		if !h.isEcho(now, l, src, l.shared.claimedAt.Load()) {
			h.conflict(now, l, src)
		}
		return inet.DropSource
	}
	h.neighbours.Advertise(now, nd)
	h.news |= NeighbourLearned
	if !nd.Router && h.routes.Forget(nd.Target) {
		h.rerouteSoon(now)
	}
	return inet.DropNone
}

// router takes a Router Advertisement (RFC 4861 section 6.3.4): its sender, for how long it is a
// default router, the hop limit, the timers, the MTU and the prefixes of the link. Addresses are
// not made of them.
func (h *Host) router(now int64, ip *inet.IPv6, nd *inet.ND) inet.Drop {
	if !h.cfg.Discover {
		return inet.DropNotOurs
	}
	h.n.RouterAdverts++
	if nd.HasMAC {
		h.neighbours.Solicit(now, ip.Src, nd.MAC)
		h.news |= NeighbourLearned
	}
	h.routes.Learn(now, inet.Addr{}, 0, ip.Src, now+int64(nd.LifetimeSec)*second)
	if nd.LifetimeSec != 0 {
		h.rsAt = math.MaxInt64 // section 6.3.7
	}
	if nd.HopLimit >= hopLimitMin && !h.cfg.KeepTTL {
		h.hopLimit6 = nd.HopLimit
	}
	h.neighbours.SetTimes(int64(nd.ReachableMs)*1_000_000, int64(nd.RetransMs)*1_000_000)
	if nd.MTU >= inet.IPv6MTUMin && int64(nd.MTU) <= int64(h.cfg.MTU) {
		h.mtu6 = int(nd.MTU)
	}
	for i := range nd.PrefixesCount {
		x := &nd.Prefixes[i]
		if !x.OnLink || x.Prefix.IsLinkLocal() || x.Prefix.IsMulticast() || x.Prefix.Is4() ||
			x.Bits == 0 {
			continue
		}
		expires := now + int64(x.Valid)*second
		if x.Valid == math.MaxUint32 {
			expires = math.MaxInt64 - 1 // for ever, but not configured
		}
		h.routes.Learn(now, x.Prefix, x.Bits, inet.Addr{}, expires)
	}
	h.rerouteSoon(now)
	return inet.DropNone
}

// solicitRouters asks for advertisements, three times at most (RFC 4861 section 6.3.7).
func (h *Host) solicitRouters(now int64) {
	h.rsAt = now + rsRetryNs
	if h.rsSent++; h.rsSent >= rsMax {
		h.rsAt = math.MaxInt64
	}
	src, ok := h.Source(inet.AllRouters, inet.LinkLocal(h.cfg.MAC))
	if !ok { // every address of ours was found to be another's
		h.n.NoSource++
		return
	}
	if f, ok := h.frame(&inet.AllRouters); ok {
		n := inet.PutRouterSolicitation(f.payload, h.cfg.MAC, src)
		f.sendND(n, &src, &inet.AllRouters, inet.AllRouters.GroupMAC())
	}
}
