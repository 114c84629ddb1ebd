package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// ours is the address a of ours, tentative ones included; nil when it is none, or a duplicate.
func (p *Poller) ours(a *inet.Addr) *localAddr {
	for i := range p.host.local {
		if l := &p.host.local[i]; l.addr == *a && l.state != AddrDuplicate {
			return l
		}
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

// member says whether we listen to a group: all-nodes, and the solicited-node groups of our
// addresses (RFC 4861 section 7.2.1), tentative ones included.
func (p *Poller) member(group *inet.Addr) bool {
	if *group == inet.AllNodes {
		return true
	}
	for i := range p.host.local {
		if l := &p.host.local[i]; !l.addr.Is4() && l.state != AddrDuplicate &&
			l.addr.SolicitedNode() == *group {
			return true
		}
	}
	return false
}

// listen wants the solicited-node group of l, or, where it is wanted already, has it reported as if
// it were new.
func (h *hostState) listen(cfg *Config, now int64, l *localAddr) {
	switch group := l.addr.SolicitedNode(); {
	case l.addr.Is4() || !cfg.speaks():
	case l.listening:
		h.listener.Renew(now, group)
	default:
		l.listening = true
		h.listener.Join(now, group)
	}
}

// unlisten is called when l is not ours any more.
func (h *hostState) unlisten(now int64, l *localAddr) {
	if l.listening {
		l.listening = false
		h.listener.Leave(now, l.addr.SolicitedNode())
	}
}

// source selects the address with which we speak to remote by way of hop (RFC 9293 MUST-44; of RFC
// 6724 section 5 the rules on scope, interface and longest prefix): of its family and scope, on its
// prefix, on the hop's, the first.
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

// possible says whether a can be one other host (RFC 1122 section 3.2.1.3): no group, no loopback,
// not "this network".
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

// tellWaiters calls what waits for a change to one of our addresses.
func (p *Poller) tellWaiters() {
	waiting := p.host.waiters
	p.host.waiters = nil
	for _, try := range waiting {
		if try() {
			p.host.waiters = append(p.host.waiters, try)
		}
	}
}

// tentatives is how many addresses are being checked.
func (p *Poller) tentatives() int {
	n := 0
	for i := range p.host.local {
		if p.host.local[i].state == AddrTentative {
			n++
		}
	}
	return n
}

// speaks says whether this Poller sends what concerns the addresses: of a Group one is enough. All
// of it keep the same times.
func (p *Poller) speaks() bool { return p.cfg.speaks() }

func (cfg *Config) speaks() bool { return cfg.Member == 0 }

// echoNs is how long what we send may be on its way back to us: links that give it back do so
// within milliseconds, and our Turns may be late.
const echoNs = second64

// claims is called before an ARP packet, or a message of neighbour discovery, is sent from a.
func (p *Poller) claims(a *inet.Addr) {
	if l := p.ours(a); l != nil {
		l.group.claimedAt.Store(p.now)
	}
}

// isEcho says whether a packet of the station at mac that concerns l may be one of ours that the
// link gives back: it has our MAC, and we sent one of its kind a moment ago, at sentAt. Another
// host may have both our MAC and our address, as the clone of a machine has; RFC 5227 section 2.1.1
// has a host believe that any other sender of the address that it probes for is a rival. A
// link-local address is made of the MAC: a station that has the one has the other, as the kernel at
// the other end of DPDK's net_tap does.
func (p *Poller) isEcho(l *localAddr, mac inet.MAC, sentAt int64) bool {
	return mac == p.mac && (p.now-sentAt < echoNs || l.addr == inet.LinkLocal(p.mac))
}
