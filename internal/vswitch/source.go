package vswitch

import "github.com/rnicd/rnicd/internal/inet"

// source says whether a program may send a frame: whether it says that it is the program's own.
// Passed: it may.
func (m *port) source(h *headers) Reason {
	s := m.station
	switch {
	case h.src != s.mac:
		return SpoofedMAC
	case h.vid != m.program.VLAN:
		return Vlan
	}
	switch h.kind {
	case kindARP:
		return s.sourceARP(&h.arp)
	case kindIPv4:
		if !s.has(&h.from) {
			return SpoofedAddr
		}
		if h.proto == inet.ProtoICMP && len(h.upper) > 0 &&
			(h.upper[0] == icmpRedirect || h.upper[0] == icmpRouter) {
			return Router
		}
		if h.proto == inet.ProtoIGMP && len(h.upper) > 0 && h.upper[0] == igmpQuery {
			return Router // as of MLD, below
		}
	case kindIPv6:
		if reason := s.source6(h); reason != Passed {
			return reason
		}
	default:
		return EtherType
	}
	if s.shared() {
		return m.sourceShared(h)
	}
	return Passed
}

const (
	icmpRedirect = 5
	icmpRouter   = 9 // Router Advertisement (RFC 1256)
	igmpQuery    = 0x11
)

// sourceARP: a sender is what the station is, and one that is looking for another with its
// address asks for its own.
func (s *station) sourceARP(a *inet.ARP) Reason {
	ip := a.SenderIP
	if ip.IsUnspecified() {
		ip = a.TargetIP
	}
	if a.SenderMAC != s.mac {
		return SpoofedMAC
	}
	if !s.has(&ip) {
		return SpoofedAddr
	}
	return Passed
}

// source6 judges IPv6 with neighbour discovery, which tells others what is whose. What could hide
// that is refused.
func (s *station) source6(h *headers) Reason {
	if h.odd {
		return Extension
	}
	if h.fragment && h.proto != inet.ProtoTCP && h.proto != inet.ProtoUDP {
		return Fragment
	}
	typ, nd := h.nd()
	if !h.from.IsUnspecified() && !s.has(&h.from) || h.from.IsUnspecified() && !nd &&
		h.proto != inet.ProtoICMPv6 {
		return SpoofedAddr
	}
	if h.proto == inet.ProtoICMPv6 && len(h.upper) > 0 && h.upper[0] == inet.MLDQuery {
		return Router // a querier decides how all others report their groups
	}
	if !nd {
		return Passed
	}
	options := inet.ICMPLen
	switch typ {
	case inet.NDRouterAdvertisement, ndRedirect:
		return Router
	case inet.NDNeighbourAdvert:
		target, ok := h.target()
		if !ok || !s.has(&target) {
			return SpoofedAddr
		}
		options = inet.NDSolicitLen
	case inet.NDNeighbourSolicitation:
		target, ok := h.target()
		if !ok || h.from.IsUnspecified() && !s.has(&target) {
			return SpoofedAddr
		}
		options = inet.NDSolicitLen
	}
	return s.linkOptions(h.upper[min(options, len(h.upper)):])
}

// linkOptions: link-layer addresses of an advertisement or solicitation are the station's.
func (s *station) linkOptions(b []byte) Reason {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || int(b[1])*8 > len(b) {
			return Malformed
		}
		if (b[0] == 1 || b[0] == 2) && inet.MAC(b[2:8]) != s.mac {
			return SpoofedMAC
		}
		b = b[int(b[1])*8:]
	}
	return Passed
}

// sourceShared: of an address that others have, too, a program sends from its TCP ports alone,
// and ICMP. An error must be about what came to it.
func (m *port) sourceShared(h *headers) Reason {
	if h.kind == kindARP {
		return Passed
	}
	if h.fragment {
		return Fragment
	}
	var tcp uint16
	var ok bool
	switch {
	case h.icmpError():
		_, tcp, ok = h.quoted()
	case h.icmp():
		return Passed
	default:
		tcp, _, ok = h.ports()
	}
	if !ok || m.station.owner[tcp] != m.member {
		return SpoofedPort
	}
	return Passed
}
