package iphost

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// Max is how many addresses a Host has at most.
const Max = 16

// Address is an address of ours. Its unexported half is the state of its claim (claim.go).
type Address struct {
	Addr      inet.Addr
	State     State
	Conflicts uint64   // packets of other hosts that claimed it
	Rival     inet.MAC // of the host that sent the last of them

	bits      int // of its on-link prefix, in the 128-bit form
	broadcast inet.Addr
	shared    *SharedAddr
	listening bool // to its solicited-node group, and the Listener knows

	step   step
	at     int64 // when step is due
	sent   int   // probes, or announcements, of this step
	saidAt int64 // the last announcement

	defend     bool  // an announcement is owed to a station that claims it
	defendedAt int64 // the conflict that was last answered
}

// Addrs are our addresses, the first of Config first. They are h's, to be read before the next
// call.
func (h *Host) Addrs() []Address { return h.addrs }

// HasIPv6 says whether there is an IPv6 address.
func (h *Host) HasIPv6() bool { return h.ip6 }

// Add adds an address with its prefix, which is on the link: it is checked, announced and then
// used. With the first one of IPv6 comes a link-local one. Errors: no unicast address, ours
// already, too many.
func (h *Host) Add(now int64, prefix netip.Prefix) error {
	if err := h.cfg.checkAddr(prefix); err != nil {
		return err
	}
	added := []netip.Prefix{prefix}
	if !h.ip6 {
		added = WithLinkLocal(added, h.cfg.MAC)
	}
	a := inet.AddrFrom(prefix.Addr())
	switch {
	case h.index(a) >= 0:
		return fmt.Errorf("address %v is ours already", prefix.Addr())
	case len(h.addrs)+len(added) > Max:
		return fmt.Errorf("address %v: %d addresses are all there can be", prefix.Addr(), Max)
	case h.routes.Room() < len(added): // all of them or none
		return fmt.Errorf("address %v: %d routes are all there can be", prefix.Addr(), inet.RoutesMax)
	}
	for _, x := range added {
		h.add(now, x)
	}
	h.schedule(now)
	return nil
}

func (h *Host) add(now int64, prefix netip.Prefix) {
	h.routes.Add(inet.Route{Prefix: prefix.Masked()})
	a := Address{
		Addr: inet.AddrFrom(prefix.Addr()), bits: prefix.Bits(), saidAt: never, defendedAt: never,
	}
	if h.cfg.Shared != nil {
		a.shared = h.cfg.Shared.enter(h.cfg.Member, a.Addr)
	} else {
		a.shared = newSharedAddr(a.Addr)
	}
	if a.Addr.Is4() {
		a.bits += 96
		a.broadcast = subnetBroadcast(prefix)
	} else {
		h.ip6 = true
		if h.cfg.NoDAD && h.cfg.Discover && h.rsSent == 0 {
			h.rsAt = now + h.draw(&a, 0, rsDelayNs)
		}
	}
	if h.cfg.NoDAD {
		a.State = Usable
	} else if h.conflicts >= conflictsMax {
		// RFC 5227 section 2.1.1: "no more than one attempted new address per RATE_LIMIT_INTERVAL"
		now = max(now, h.claimedAt+probeLimitNs)
	}
	h.claimedAt = now
	h.claim(now, &a)
	h.addrs = append(h.addrs, a)
	h.goneSeen-- // another Host may have given it up: look once
}

// CanRemove says whether addr is an address of ours, and not the first, which stays.
func (h *Host) CanRemove(addr inet.Addr) bool { return h.index(addr) > 0 }

func (h *Host) index(addr inet.Addr) int {
	return slices.IndexFunc(h.addrs, func(a Address) bool { return a.Addr == addr })
}

// Remove takes an address away that CanRemove. The caller has ended what uses it.
func (h *Host) Remove(now int64, addr inet.Addr) {
	i := h.index(addr)
	h.unlisten(now, &h.addrs[i])
	a := h.addrs[i]
	if h.cfg.Shared != nil {
		h.cfg.Shared.leave(a.shared)
	}
	h.addrs = slices.Delete(h.addrs, i, i+1)
	h.routes.Remove(a.Addr, a.bits) // its own: another address of the network has another
	if h.ip6 && !slices.ContainsFunc(h.addrs, func(a Address) bool { return !a.Addr.Is4() }) {
		h.ip6 = false
		h.rsAt, h.rsSent = math.MaxInt64, 0
	}
	h.reroutes.want(now, rerouteNs)
	h.news |= AddrChanged
	h.schedule(now)
}

// Find is the address a of ours, tentative ones included; nil when it is none, or a duplicate.
func (h *Host) Find(a *inet.Addr) *Address {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.Addr == *a && l.State != Duplicate {
			return l
		}
	}
	return nil
}

// IsLocal says whether a is an address of ours that is in use.
func (h *Host) IsLocal(a *inet.Addr) bool {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.Addr == *a && l.State == Usable {
			return true
		}
	}
	return false
}

// IsMember says whether we listen to a group: all-nodes, and the solicited-node groups of our
// addresses (RFC 4861 section 7.2.1), tentative ones included.
func (h *Host) IsMember(group *inet.Addr) bool {
	if *group == inet.AllNodes {
		return true
	}
	for i := range h.addrs {
		l := &h.addrs[i]
		if !l.Addr.Is4() && l.State != Duplicate && l.Addr.SolicitedNode() == *group {
			return true
		}
	}
	return false
}

// Possible says whether a can be one other host (RFC 1122 section 3.2.1.3): no group, no loopback,
// not "this network".
func (h *Host) Possible(a *inet.Addr) bool {
	if !a.IsStation() {
		return false
	}
	if !a.Is4() {
		return true
	}
	if a[12] == 0 {
		return false
	}
	for i := range h.addrs {
		if h.addrs[i].broadcast == *a {
			return false
		}
	}
	return true
}

// Source selects the address with which we speak to remote by way of hop (RFC 9293 MUST-44; of RFC
// 6724 section 5 the rules on scope, interface and longest prefix): of its family and scope, on its
// prefix, on the hop's, the first.
func (h *Host) Source(remote, hop inet.Addr) (inet.Addr, bool) {
	best, bestScore := inet.Addr{}, -1
	for i := range h.addrs {
		l := &h.addrs[i]
		if l.State != Usable || l.Addr.Is4() != remote.Is4() {
			continue
		}
		score := 0
		if InScope(&l.Addr, &remote) {
			score += 4
		}
		if remote.InPrefix(l.Addr, l.bits) {
			score += 2
		}
		if hop.InPrefix(l.Addr, l.bits) {
			score++
		}
		if score > bestScore {
			best, bestScore = l.Addr, score
		}
	}
	return best, bestScore >= 0
}

// InScope says whether our address a has the scope of remote.
func InScope(a, remote *inet.Addr) bool {
	return a.IsLinkLocal() == (remote.IsLinkLocal() || remote.IsMulticast() && remote[1]&0xf == 2)
}

// linkLocal is our link-local address that may be used, or ::.
func (h *Host) linkLocal() inet.Addr {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.State == Usable && l.Addr.IsLinkLocal() {
			return l.Addr
		}
	}
	return inet.Addr{}
}

// Tentatives is how many addresses are being checked.
func (h *Host) Tentatives() int {
	n := 0
	for i := range h.addrs {
		if h.addrs[i].State == Tentative {
			n++
		}
	}
	return n
}

// speaks says whether this Host sends what concerns the addresses: of those that share them one is
// enough. All keep the same times.
func (h *Host) speaks() bool { return h.cfg.Member == 0 }

// echoNs is how long what we send may be on its way back to us: links that give it back do so
// within milliseconds, and the caller may be late.
const echoNs = second

// claims is called before an ARP packet, or a message of neighbour discovery, is sent from a.
func (h *Host) claims(now int64, a *inet.Addr) {
	if l := h.Find(a); l != nil {
		l.shared.claimedAt.Store(now)
	}
}

// isEcho says whether a packet of the station at mac that concerns l may be one of ours that the
// link gives back: it has our MAC, and we sent one of its kind a moment ago, at sentAt. Another
// host may have both our MAC and our address, as the clone of a machine has; RFC 5227 section 2.1.1
// has a host believe that any other sender of the address that it probes for is a rival. A
// link-local address is made of the MAC: a station that has the one has the other, as the kernel at
// the other end of DPDK's net_tap does.
func (h *Host) isEcho(now int64, l *Address, mac inet.MAC, sentAt int64) bool {
	return mac == h.cfg.MAC && (now-sentAt < echoNs || l.Addr == inet.LinkLocal(mac))
}
