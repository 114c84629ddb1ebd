package stack

import (
	"math"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

const (
	ndHopLimit = 255 // RFC 4861 section 3.1: no router can have passed it on

	// What a router may have us send at least: with 1 nothing would pass it (CVE-2015-2922). Paths
	// have some 20 hops.
	hopLimitMin = 32
)

// discover handles a message of neighbour discovery.
func (p *Poller) discover(src inet.MAC, ip *inet.IPv6, message []byte) {
	nd := &p.host.nd
	if drop := inet.ParseND(message, ip.Src, ip.Dst, ip.HopLimit, nd); drop != inet.DropNone {
		p.n.Inet[drop]++
		return
	}
	switch nd.Type {
	case inet.NDNeighbourSolicitation:
		p.solicited(src, ip, nd)
	case inet.NDNeighbourAdvert:
		p.advertised(src, nd)
	case inet.NDRouterAdvertisement:
		p.router(ip, nd)
	default: // a Router Solicitation is for routers
		p.n.Inet[inet.DropNotOurs]++
	}
}

// solicited answers for our addresses (RFC 4861 sections 7.2.3 and 7.2.4).
func (p *Poller) solicited(src inet.MAC, ip *inet.IPv6, nd *inet.ND) {
	probe := ip.Src.IsUnspecified()
	l := p.ours(&nd.Target)
	switch {
	case l != nil && l.state == AddrTentative && probe:
		// somebody else is about to take it (RFC 4862 section 5.4.3)
		p.n.Inet[inet.DropSource]++
		if src != p.mac { // else the link gives us back what we sent, perhaps
			p.conflict(l, src)
		}
		return
	case l != nil && probe && p.isEcho(l, src, l.group.probedAt.Load()): // as probeEcho
		p.n.Inet[inet.DropSource]++
		return
	case l == nil || l.state == AddrTentative:
		p.n.Inet[inet.DropNotOurs]++
		return
	}
	to, mac := ip.Src, src
	if probe {
		to, mac = inet.AllNodes, inet.AllNodes.GroupMAC()
	} else if nd.HasMAC {
		p.neighbours.Solicit(p.now, ip.Src, nd.MAC)
		p.learned = true
		mac = nd.MAC
	}
	if p.advertise(nd.Target, to, mac) {
		p.n.NDReplies++
	}
}

// impostor handles an ICMPv6 message, in b, from an address of ours. If it is one of neighbour
// discovery, which no router can have passed on, the station at mac uses the address.
func (p *Poller) impostor(b mem.Buf, mac inet.MAC, ip *inet.IPv6, message []byte) {
	nd := &p.host.nd
	if inet.ParseND(message, ip.Src, ip.Dst, ip.HopLimit, nd) != inet.DropNone {
		return
	}
	p.tellGroup(b)
	if l := p.ours(&ip.Src); l != nil && !p.isEcho(l, mac, l.group.claimedAt.Load()) &&
		(nd.Type == inet.NDNeighbourSolicitation || nd.Type == inet.NDNeighbourAdvert) {
		p.conflict(l, mac)
	}
}

// advertised takes an answer, or the word of another host that an address of ours is its own (RFC
// 4862 section 5.4.4).
func (p *Poller) advertised(src inet.MAC, nd *inet.ND) {
	if l := p.ours(&nd.Target); l != nil {
		p.n.Inet[inet.DropSource]++
		if nd.HasMAC {
			src = nd.MAC
		}
		if !p.isEcho(l, src, l.group.claimedAt.Load()) {
			p.conflict(l, src)
		}
		return
	}
	p.neighbours.Advertise(p.now, nd)
	p.learned = true
	if !nd.Router && p.host.routes.Forget(nd.Target) {
		p.routesChanged()
	}
}

// router takes a Router Advertisement (RFC 4861 section 6.3.4): its sender, for how long it is a
// default router, the hop limit, the timers, the MTU and the prefixes of the link. Addresses are
// not made of them.
func (p *Poller) router(ip *inet.IPv6, nd *inet.ND) {
	if !p.cfg.Discover {
		p.n.Inet[inet.DropNotOurs]++
		return
	}
	h := &p.host
	p.n.RouterAdverts++
	if nd.HasMAC {
		p.neighbours.Solicit(p.now, ip.Src, nd.MAC)
		p.learned = true
	}
	h.routes.Learn(p.now, inet.Addr{}, 0, ip.Src, p.now+int64(nd.LifetimeSec)*second64)
	if nd.LifetimeSec != 0 {
		h.rsAt = math.MaxInt64 // section 6.3.7
	}
	if nd.HopLimit >= hopLimitMin && !p.cfg.ttlGiven {
		h.hopLimit6 = nd.HopLimit
	}
	p.neighbours.SetTimes(int64(nd.ReachableMs)*1_000_000, int64(nd.RetransMs)*1_000_000)
	if nd.MTU >= inet.IPv6MTUMin && int64(nd.MTU) <= int64(p.cfg.MTU) {
		h.mtu6 = int(nd.MTU)
	}
	for i := range nd.PrefixesCount {
		x := &nd.Prefixes[i]
		if !x.OnLink || x.Prefix.IsLinkLocal() || x.Prefix.IsMulticast() || x.Prefix.Is4() ||
			x.Bits == 0 {
			continue
		}
		expires := p.now + int64(x.Valid)*second64
		if x.Valid == math.MaxUint32 {
			expires = math.MaxInt64 - 1 // for ever, but not configured
		}
		h.routes.Learn(p.now, x.Prefix, x.Bits, inet.Addr{}, expires)
	}
	p.routesChanged()
}

// solicitRouters asks for advertisements, three times at most (RFC 4861 section 6.3.7).
func (p *Poller) solicitRouters() {
	h := &p.host
	h.rsAt = p.now + rsRetryNs
	if h.rsSent++; h.rsSent >= rsMax {
		h.rsAt = math.MaxInt64
	}
	src, ok := p.source(inet.AllRouters, inet.LinkLocal(p.mac))
	if !ok { // every address of ours was found to be another's
		p.n.Own[DropNoRoute]++
		return
	}
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return
	}
	n := inet.PutRouterSolicitation(p.pool.Slot(b)[p.pool.Headroom():], p.mac, src)
	p.putPacket(b, &src, &inet.AllRouters, inet.ProtoICMPv6, 0, ndHopLimit, n)
	if !p.reply(b, inet.AllRouters.GroupMAC()) {
		p.discard(b)
	}
}
