package stack

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
)

const (
	addrsMax  = 16 // addresses of one Poller
	second64  = int64(1_000_000_000)
	rsDelayNs = second64     // MAX_RTR_SOLICITATION_DELAY
	rsRetryNs = 4 * second64 // RTR_SOLICITATION_INTERVAL
	rsMax     = 3            // MAX_RTR_SOLICITATIONS
	rerouteNs = second64
)

// hostState is what the Poller is on its link besides its connections.
type hostState struct {
	local     []localAddr // the first is Config.Addr
	ip6       bool        // there is an IPv6 address
	l2        int         // octets of the Ethernet headers we send
	hopLimit6 uint8
	mtu6      int

	routes    *inet.Routes
	paths     *inet.PathMTU
	fragments *inet.Reassembly
	ident     *inet.Identification
	errors    bucket // ICMP errors of ours

	pathsChanged uint32 // how often one of paths became smaller, or ended

	rerouteAt  int64 // not before: see routesChanged
	routesLate bool  // routes have changed, and connections have not been told

	rsAt   int64 // next Router Solicitation; math.MaxInt64: none
	rsSent int
	dueAt  int64 // when housekeep has something to do

	draws     uint64                // of random times
	quietTo   int64                 // until then nothing is announced
	linkAt    int64                 // when a LinkUp takes effect; math.MaxInt64: none is waiting
	linkedAt  int64                 // the last one that did
	conflicts int                   // addresses found to be another's
	claimedAt int64                 // when the checks of the newest address began
	waiters   []func() (again bool) // of UntilChecked
	goneSeen  uint32                // Group.addrsGone, as far as it was heeded

	nd inet.ND // the message in hand
}

func newHost(cfg *Config, now int64, s *secret) hostState {
	h := hostState{
		l2: inet.EthernetLen, hopLimit6: cfg.TTL, mtu6: cfg.MTU,
		routes: inet.NewRoutes(), paths: inet.NewPathMTU(cfg.PathMTU), fragments: inet.NewReassembly(cfg.Reassembly),
		ident: inet.NewIdentification(), errors: newBucket(now, cfg.ICMPPerSec), rsAt: math.MaxInt64,
		linkAt: math.MaxInt64, linkedAt: never, quietTo: never, claimedAt: never,
	}
	if cfg.VLAN != 0 {
		h.l2 += inet.VLANLen
	}
	for _, prefix := range cfg.allAddrs() {
		h.addAddr(cfg, now, s, prefix)
	}
	for _, r := range cfg.allRoutes() {
		h.routes.Add(r)
	}
	h.dueAt = now
	return h
}

// addAddr adds an address with its prefix, which is on the link; the caller has seen to it that
// there is room for its route.
func (h *hostState) addAddr(cfg *Config, now int64, s *secret, prefix netip.Prefix) {
	h.routes.Add(inet.Route{Prefix: prefix.Masked()})
	l := localAddr{addr: inet.AddrFrom(prefix.Addr()), bits: prefix.Bits(), saidAt: never, defendedAt: never}
	if l.group = newGroupAddr(l.addr); cfg.Group != nil {
		l.group = cfg.Group.joinAddr(cfg.Member, l.addr)
	}
	if l.addr.Is4() {
		l.bits += 96
		l.broadcast = subnetBroadcast(prefix)
	} else {
		h.ip6 = true
		if cfg.NoDAD && cfg.Discover && h.rsSent == 0 {
			h.rsAt = now + h.draw(s, &l, 0, rsDelayNs)
		}
	}
	if cfg.NoDAD {
		l.state = AddrUsable
	} else if h.conflicts >= conflictsMax { // RFC 5227 section 2.1.1: "no more than one attempted new address per RATE_LIMIT_INTERVAL"
		now = max(now, h.claimedAt+probeLimitNs)
	}
	h.claimedAt = now
	h.claim(cfg, now, s, &l)
	h.local = append(h.local, l)
	h.goneSeen-- // another member may have given it up: look once
}

// removeAddr takes address i away.
func (h *hostState) removeAddr(cfg *Config, i int) {
	l := h.local[i]
	if cfg.Group != nil {
		cfg.Group.leaveAddr(l.group)
	}
	h.local = slices.Delete(h.local, i, i+1)
	h.routes.Remove(l.addr, l.bits) // its own: another address of the network has another
	if h.ip6 && !slices.ContainsFunc(h.local, func(l localAddr) bool { return !l.addr.Is4() }) {
		h.ip6 = false
		h.rsAt, h.rsSent = math.MaxInt64, 0
	}
}

// allAddrs are the configured addresses, Addr first, and for IPv6 a link-local one if there is none among them.
func (cfg *Config) allAddrs() []netip.Prefix {
	all := append([]netip.Prefix{cfg.Addr}, cfg.Addrs...)
	six, linkLocal := false, false
	for _, a := range all {
		six = six || a.Addr().Is6()
		linkLocal = linkLocal || a.Addr().IsLinkLocalUnicast() && a.Addr().Is6()
	}
	if six && !linkLocal {
		all = append(all, netip.PrefixFrom(inet.LinkLocal(cfg.MAC).Netip(), 64))
	}
	return all
}

// allRoutes are those through gateways.
func (cfg *Config) allRoutes() []inet.Route {
	if !cfg.Gateway.IsValid() {
		return cfg.Routes
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if cfg.Gateway.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return append([]inet.Route{{Prefix: all, Gateway: cfg.Gateway}}, cfg.Routes...)
}

// checkHost says what is wrong with the addresses and routes.
func (cfg *Config) checkHost() error {
	all := cfg.allAddrs()
	if len(all) > addrsMax {
		return fmt.Errorf("%d addresses: at most %d", len(all), addrsMax)
	}
	for _, a := range all {
		if err := cfg.checkAddr(a); err != nil {
			return err
		}
	}
	routes := cfg.allRoutes()
	if len(all)+len(routes) > inet.RoutesMax {
		return fmt.Errorf("%d routes: at most %d", len(routes), inet.RoutesMax-len(all))
	}
	for _, r := range routes {
		onLink := !r.Gateway.IsValid()
		for _, a := range all {
			if a.Addr() == r.Gateway {
				return fmt.Errorf("gateway %v is our own address; name a router's", r.Gateway)
			}
			onLink = onLink || a.Contains(r.Gateway)
		}
		if !onLink {
			return fmt.Errorf("gateway %v is not on %v", r.Gateway, all[0].Masked())
		}
		if !r.Prefix.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != r.Prefix.Addr().Is4() {
			return fmt.Errorf("route %v by %v: want a prefix and a gateway of one family", r.Prefix, r.Gateway)
		}
	}
	if cfg.VLAN > 4094 {
		return fmt.Errorf("VLAN %d: want 1 to 4094, or 0 for untagged frames", cfg.VLAN)
	}
	return nil
}

// checkAddr says what is wrong with one address.
func (cfg *Config) checkAddr(a netip.Prefix) error {
	if b := inet.AddrFrom(a.Addr()); !a.IsValid() || !b.IsStation() || a.Addr().Is4In6() {
		return fmt.Errorf("address %v: want an IPv4 or IPv6 unicast address with its prefix length, as 192.0.2.1/24", a)
	}
	if a.Addr().Is6() && cfg.MTU < inet.IPv6MTUMin {
		return fmt.Errorf("MTU %d: IPv6 wants at least %d", cfg.MTU, inet.IPv6MTUMin)
	}
	return nil
}

// isLocal says whether a is an address of ours that is in use.
func (p *Poller) isLocal(a *inet.Addr) bool {
	for i := range p.host.local {
		if l := &p.host.local[i]; l.addr == *a && l.state == AddrUsable {
			return true
		}
	}
	return false
}

// member says whether we listen to a group: all-nodes, and the solicited-node groups of our addresses (RFC 4861 section
// 7.2.1), tentative ones included.
func (p *Poller) member(group *inet.Addr) bool {
	if *group == inet.AllNodes {
		return true
	}
	for i := range p.host.local {
		if l := &p.host.local[i]; !l.addr.Is4() && l.state != AddrDuplicate && l.addr.SolicitedNode() == *group {
			return true
		}
	}
	return false
}

// source selects the address with which we speak to remote by way of hop (RFC 9293 MUST-44; of RFC 6724 section 5 the
// rules on scope, interface and longest prefix): of its family and scope, on its prefix, on the hop's, the first.
func (p *Poller) source(remote, hop inet.Addr) (inet.Addr, bool) {
	best, bestScore := inet.Addr{}, -1
	for i := range p.host.local {
		l := &p.host.local[i]
		if l.state != AddrUsable || l.addr.Is4() != remote.Is4() {
			continue
		}
		score := 0
		if inScope(&l.addr, &remote) {
			score += 4
		}
		if remote.InPrefix(l.addr, l.bits) {
			score += 2
		}
		if hop.InPrefix(l.addr, l.bits) {
			score++
		}
		if score > bestScore {
			best, bestScore = l.addr, score
		}
	}
	return best, bestScore >= 0
}

// inScope says whether our address a has the scope of remote.
func inScope(a, remote *inet.Addr) bool {
	return a.IsLinkLocal() == (remote.IsLinkLocal() || remote.IsMulticast() && remote[1]&0xf == 2)
}

// possible says whether a can be one other host (RFC 1122 section 3.2.1.3): no group, no loopback, not "this network".
func (p *Poller) possible(a *inet.Addr) bool {
	if !a.IsStation() {
		return false
	}
	if !a.Is4() {
		return true
	}
	if a[12] == 0 {
		return false
	}
	for i := range p.host.local {
		if p.host.local[i].broadcast == *a {
			return false
		}
	}
	return true
}

// subnetBroadcast is the all-ones host of a prefix that has one (RFC 3021: a /31 has none).
func subnetBroadcast(prefix netip.Prefix) inet.Addr {
	if prefix.Bits() > 30 {
		return inet.Addr{}
	}
	b := prefix.Addr().As4()
	host := ^uint32(0) >> prefix.Bits()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|host)
	return inet.AddrFrom4(b)
}

// housekeep does what is due besides connections and neighbours.
func (p *Poller) housekeep() int {
	work := 0
	h := &p.host
	if h.routes.Expire(p.now) {
		work++
		h.routesLate = true
	}
	if h.routesLate && h.rerouteAt <= p.now {
		work++
		p.reroute()
	}
	for _, ok := h.paths.Expire(p.now); ok; _, ok = h.paths.Expire(p.now) {
		work++
		h.pathsChanged++ // the estimate is old: the link's MTU is tried again (RFC 1191 section 6.3)
	}
	for {
		quote, condemned, ok := h.fragments.Expire(p.now)
		if !ok {
			break
		}
		work++
		p.n.Inet[inet.DropReassemblyTimeout]++
		if quote != nil && !condemned {
			p.reassemblyExceeded(quote)
		}
	}
	work += p.checkAddrs()
	if h.rsAt <= p.now {
		work++
		p.solicitRouters()
	}
	p.schedule()
	return work
}

// schedule computes when housekeep is due.
func (p *Poller) schedule() {
	h := &p.host
	at := min(h.routes.Deadline(), h.paths.Deadline(), h.fragments.Deadline(), h.rsAt, h.linkAt)
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

// route is the next hop towards a: a itself when it is on-link, else a gateway (RFC 1122 section 3.3.1.1).
func (p *Poller) route(a inet.Addr) (inet.Addr, bool) { return p.host.routes.Lookup(p.now, a) }

// routesChanged sees to it that connections learn of it: at once, but not more than once in rerouteNs. It takes a look at all
// of them, and anybody on the link can send advertisements.
func (p *Poller) routesChanged() {
	p.host.routesLate = true
	p.schedule()
}

// reroute asks the routes again for every connection.
func (p *Poller) reroute() {
	p.host.routesLate, p.host.rerouteAt = false, p.now+rerouteNs
	for i := range p.slab.conns {
		c := &p.slab.conns[i]
		if c.phase == phaseFree {
			continue
		}
		if hop, ok := p.route(c.id.Remote); ok && hop != c.nextHop {
			c.nextHop = hop
			p.n.Rerouted++
		}
	}
}

// lost is called when the neighbour table has found that hop does not answer. If it is a gateway, the connections that went
// through it take another route (RFC 1122 section 3.3.1.4).
func (p *Poller) lost(hop inet.Addr) {
	if p.host.routes.Dead(p.now, hop) {
		p.reroute()
	}
}

// linkMTU is the largest packet that the link takes to dst.
func (p *Poller) linkMTU(dst *inet.Addr) int {
	if dst.Is4() {
		return p.cfg.MTU
	}
	return p.host.mtu6
}

// mtuTo is the path MTU to dst as far as it is known.
func (p *Poller) mtuTo(dst inet.Addr) int { return p.host.paths.Get(dst, p.linkMTU(&dst)) }

// putEthernet writes the link header of a frame of ours, all but the destination.
func (p *Poller) putEthernet(frame []byte, typ uint16) {
	eth := inet.Ethernet{Src: p.mac, Type: typ}
	if p.cfg.VLAN != 0 {
		eth.PutVLAN(frame, p.cfg.VLAN)
		return
	}
	eth.Put(frame)
}

// putPacket makes the n octets at b's headroom the payload of an IP packet, and of a frame without its destination.
func (p *Poller) putPacket(b mem.Buf, src, dst *inet.Addr, proto, tos, ttl uint8, n int) {
	l3 := ipLen(dst)
	h := p.pool.Headroom()
	off := h - l3 - p.host.l2
	frame := p.pool.Slot(b)[off : h+n]
	if l3 == inet.IPv4Len {
		p.putEthernet(frame, inet.EtherTypeIPv4)
		ip := inet.IPv4{TOS: tos, DF: true, TTL: ttl, Proto: proto, Src: *src, Dst: *dst, TotalLen: inet.IPv4Len + n}
		ip.Put(frame[p.host.l2:])
	} else {
		p.putEthernet(frame, inet.EtherTypeIPv6)
		ip := inet.IPv6{TrafficClass: tos, PayloadLen: n, NextHeader: proto, HopLimit: ttl, Src: *src, Dst: *dst}
		ip.Put(frame[p.host.l2:])
	}
	d := p.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(off), uint32(len(frame)), 0
}

// ipLen is the length of the IP header towards dst.
func ipLen(dst *inet.Addr) int {
	if dst.Is4() {
		return inet.IPv4Len
	}
	return inet.IPv6Len
}
