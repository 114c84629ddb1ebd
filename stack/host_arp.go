package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// arp handles a received ARP packet: RFC 826, "Packet Reception". It returns whether b is done
// with.
func (p *Poller) arp(b mem.Buf, packet []byte) bool {
	a, drop := inet.ParseARP(packet)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	if l := p.contested(&a); l != nil {
		p.n.Inet[inet.DropSource]++
		echo := a.SenderMAC == p.mac // of a probe
		if !a.SenderIP.IsUnspecified() {
			echo = p.isEcho(l, a.SenderMAC, l.group.claimedAt.Load())
		}
		if !echo {
			p.conflict(l, a.SenderMAC)
		}
		return true
	}
	if p.probeEcho(&a) {
		p.n.Inet[inet.DropSource]++
		return true
	}
	us := a.TargetIP
	if !p.isLocal(&us) {
		us = inet.Addr{} // nobody's: what remains is the merge
	}
	answer, ours, drop := p.neighbours.Input(p.now, &a, us, p.mac)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	p.learned = true
	if !ours {
		return true
	}
	p.claims(&us)
	p.putARP(b, &answer)
	if !p.reply(b, answer.TargetMAC) {
		return true
	}
	p.n.ARPReplies++
	return false
}

// contested is the address of ours that the sender of an ARP packet takes for its own, nil when it
// is none: any packet from it (RFC 5227 section 2.4), and, while we are checking it, a probe for it
// (section 2.1.1).
func (p *Poller) contested(a *inet.ARP) *localAddr {
	if !a.SenderIP.IsUnspecified() {
		return p.ours(&a.SenderIP)
	}
	if l := p.ours(&a.TargetIP); l != nil && l.state == AddrTentative && a.Op == inet.ARPRequest {
		return l
	}
	return nil
}

// probeEcho says that a is a probe of ours for an address in use, which the link gives back: our
// answer would come back as well, and look like another host's.
func (p *Poller) probeEcho(a *inet.ARP) bool {
	if a.SenderMAC != p.mac || !a.SenderIP.IsUnspecified() {
		return false
	}
	l := p.ours(&a.TargetIP)
	return l != nil && p.isEcho(l, a.SenderMAC, l.group.probedAt.Load())
}
