package stack

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

const (
	addrsMax  = 16 // addresses of one Poller
	second64  = int64(1_000_000_000)
	rsDelayNs = second64     // MAX_RTR_SOLICITATION_DELAY
	rsRetryNs = 4 * second64 // RTR_SOLICITATION_INTERVAL
	rsMax     = 3            // MAX_RTR_SOLICITATIONS
	rerouteNs = second64
)

// hostState is what the Poller has on its link that belongs to no connection.
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

	listener *inet.Listener
	listenAt int64 // not before: there was no Buf

	nd  inet.ND // the message in hand
	mld inet.MLD
}

func newHost(cfg *Config, now int64, s *secret) hostState {
	h := hostState{
		l2: inet.EthernetLen, hopLimit6: cfg.TTL, mtu6: cfg.MTU,
		routes: inet.NewRoutes(), paths: inet.NewPathMTU(cfg.PathMTU),
		fragments: inet.NewReassembly(cfg.Reassembly),
		ident:     inet.NewIdentification(), errors: newBucket(now, cfg.ICMPPerSec), rsAt: math.MaxInt64,
		linkAt: math.MaxInt64, linkedAt: never, quietTo: never, claimedAt: never,
		listener: inet.NewListener(s.prf(useListener, nil)), listenAt: never,
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
	l := localAddr{addr: inet.AddrFrom(prefix.Addr()), bits: prefix.Bits(), saidAt: never,
		defendedAt: never}
	if l.group = newGroupAddr(l.addr); cfg.Group != nil {
		l.group = cfg.Group.shareAddr(cfg.Member, l.addr)
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
	} else if h.conflicts >= conflictsMax {
		// RFC 5227 section 2.1.1: "no more than one attempted new address per RATE_LIMIT_INTERVAL"
		now = max(now, h.claimedAt+probeLimitNs)
	}
	h.claimedAt = now
	h.claim(cfg, now, s, &l)
	h.local = append(h.local, l)
	h.goneSeen-- // another member may have given it up: look once
}

// removeAddr takes address i away.
func (h *hostState) removeAddr(cfg *Config, now int64, i int) {
	h.unlisten(now, &h.local[i])
	l := h.local[i]
	if cfg.Group != nil {
		cfg.Group.unshareAddr(l.group)
	}
	h.local = slices.Delete(h.local, i, i+1)
	h.routes.Remove(l.addr, l.bits) // its own: another address of the network has another
	if h.ip6 && !slices.ContainsFunc(h.local, func(l localAddr) bool { return !l.addr.Is4() }) {
		h.ip6 = false
		h.rsAt, h.rsSent = math.MaxInt64, 0
	}
}

// allAddrs are the configured addresses, Addr first, and for IPv6 a link-local one if there is none
// among them.
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

// CheckHost says what New would refuse of addresses, routes, VLAN and MTU. Any goroutine.
func (cfg *Config) CheckHost() error {
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
			return fmt.Errorf("route %v by %v: want a prefix and a gateway of one family",
				r.Prefix, r.Gateway)
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
		return fmt.Errorf("address %v: want an IPv4 or IPv6 unicast address with its prefix length, as "+
			"192.0.2.1/24", a)
	}
	if a.Addr().Is6() && cfg.MTU < inet.IPv6MTUMin {
		return fmt.Errorf("MTU %d: IPv6 wants at least %d", cfg.MTU, inet.IPv6MTUMin)
	}
	return nil
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
