package iphost

import "github.com/rnicd/rnicd/internal/inet"

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

// IsMember says whether we listen to a group of IPv6 by ourselves: all-nodes, and the
// solicited-node groups of our addresses (RFC 4861 section 7.2.1), tentative ones included.
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

// Speaks says whether an address of IPv4, or of IPv6, may be used.
func (h *Host) Speaks(four bool) bool {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.State == Usable && l.Addr.Is4() == four {
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
