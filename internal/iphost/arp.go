package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// ARP handles a received ARP packet: RFC 826, "Packet Reception".
func (h *Host) ARP(now int64, packet []byte) inet.Drop {
	var drop inet.Drop
	a := &h.arp
	if *a, drop = inet.ParseARP(packet); drop != inet.DropNone {
		return drop
	}
	if l := h.contested(a); l != nil {
		echo := a.SenderMAC == h.cfg.MAC // of a probe
		if !a.SenderIP.IsUnspecified() {
			echo = h.isEcho(now, l, a.SenderMAC, l.shared.claimedAt.Load())
		}
		if !echo {
			h.conflict(now, l, a.SenderMAC)
		}
		return inet.DropSource
	}
	if h.probeEcho(now, a) {
		return inet.DropSource
	}
	us := a.TargetIP
	if !h.IsLocal(&us) {
		us = inet.Addr{} // nobody's: what remains is the merge
	}
	answer, ours, drop := h.neighbours.Input(now, a, us, h.cfg.MAC)
	if drop != inet.DropNone {
		return drop
	}
	h.news |= NeighbourLearned
	if ours {
		h.claims(now, &us)
		if h.sendARP(&answer, answer.TargetMAC) {
			h.n.ARPReplies++
		}
	}
	return inet.DropNone
}

// contested is the address of ours that the sender of an ARP packet takes for its own, nil when it
// is none: any packet from it (RFC 5227 section 2.4), and, while we are checking it, a probe for it
// (section 2.1.1).
func (h *Host) contested(a *inet.ARP) *Address {
	if !a.SenderIP.IsUnspecified() {
		return h.Find(&a.SenderIP)
	}
	if l := h.Find(&a.TargetIP); l != nil && l.State == Tentative && a.Op == inet.ARPRequest {
		return l
	}
	return nil
}

// probeEcho says that a is a probe of ours for an address in use, which the link gives back: our
// answer would come back as well, and look like another host's.
func (h *Host) probeEcho(now int64, a *inet.ARP) bool {
	if a.SenderMAC != h.cfg.MAC || !a.SenderIP.IsUnspecified() {
		return false
	}
	l := h.Find(&a.TargetIP)
	return l != nil && h.isEcho(now, l, a.SenderMAC, l.shared.probedAt.Load())
}

// Ask sends an ARP request or a Neighbour Solicitation for ip to mac: Broadcast, or the neighbour
// itself to see whether it is still there.
func (h *Host) Ask(now int64, ip inet.Addr, mac inet.MAC) {
	src, ok := h.Source(ip, ip)
	if !ok {
		h.n.NoSource++
		return
	}
	if !ip.Is4() {
		h.solicit(now, src, ip, mac)
		return
	}
	h.claims(now, &src)
	a := inet.RequestARP(h.cfg.MAC, src, ip)
	if h.sendARP(&a, mac) {
		h.n.ARPRequests++
	}
}
