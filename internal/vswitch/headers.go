package vswitch

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
)

// headers is what switching needs of a frame. It points into the frame, which is a copy that no
// program can change.
type headers struct {
	dst, src inet.MAC
	vid      uint16
	kind     kind
	from, to inet.Addr // of IP
	proto    uint8     // of the transport; of a later fragment, what the first one has
	hop      uint8     // IPv6
	fragment bool
	later    bool // a fragment after the first
	odd      bool // extension headers that hide the transport
	id       uint32
	upper    []byte // what proto begins with; nil of a later fragment
	arp      inet.ARP
}

type kind uint8

const (
	kindOther kind = iota
	kindARP
	kindIPv4
	kindIPv6
)

var be = binary.BigEndian

const etherTypeIPv4, etherTypeIPv6 = 0x0800, 0x86dd

// parse reads a frame; a Reason other than Passed: it is none that anybody could use.
func (h *headers) parse(b []byte) Reason {
	e, p, d := inet.ParseEthernet(b)
	if d != inet.DropNone {
		return Malformed
	}
	*h = headers{dst: e.Dst, src: e.Src}
	typ := e.Type
	if typ == inet.EtherTypeVLAN {
		if h.vid, typ, p, d = inet.ParseVLAN(p); d != inet.DropNone {
			return Malformed
		}
		if h.vid == vidReserved || typ == inet.EtherTypeVLAN {
			return Vlan
		}
	}
	switch typ {
	case inet.EtherTypeARP:
		if h.arp, d = inet.ParseARP(p); d != inet.DropNone {
			return Malformed
		}
		h.kind = kindARP
	case etherTypeIPv4:
		h.kind = kindIPv4
		return h.ipv4(p)
	case etherTypeIPv6:
		h.kind = kindIPv6
		return h.ipv6(p)
	}
	return Passed
}

const vidReserved = 0xfff

func (h *headers) ipv4(b []byte) Reason {
	if len(b) < inet.IPv4Len || b[0]>>4 != 4 {
		return Malformed
	}
	header, total := int(b[0]&15)*4, int(be.Uint16(b[2:]))
	if header < inet.IPv4Len || total < header || total > len(b) {
		return Malformed
	}
	h.from, h.to, h.proto = inet.AddrFrom4([4]byte(b[12:16])), inet.AddrFrom4([4]byte(b[16:20])), b[9]
	h.id = uint32(be.Uint16(b[4:]))
	field := be.Uint16(b[6:])
	h.fragment, h.later = field&0x3fff != 0, field&0x1fff != 0
	if !h.later {
		h.upper = b[header:total]
	}
	return Passed
}

func (h *headers) ipv6(b []byte) Reason {
	if len(b) < inet.IPv6Len || b[0]>>4 != 6 {
		return Malformed
	}
	n := int(be.Uint16(b[4:]))
	if n > len(b)-inet.IPv6Len {
		return Malformed
	}
	h.from, h.to, h.proto, h.hop = inet.Addr(b[8:24]), inet.Addr(b[24:40]), b[6], b[7]
	// must not be on a wire (RFC 4291, 2.5.5.2), and would be taken for the IPv4 host
	if h.from.Is4() || h.to.Is4() {
		return Malformed
	}
	payload := b[inet.IPv6Len:][:n]
	if h.proto == inet.ProtoTCP || h.proto == inet.ProtoICMPv6 { // no extension headers: nearly all
		h.upper = payload
		return Passed
	}
	c, d := inet.WalkIPv6(payload, h.proto, inet.IPv6Len, false)
	if d != inet.DropNone {
		h.odd, h.proto = true, inet.ProtoNoNext
		return Passed
	}
	if c.HasFragment {
		h.proto, h.fragment, h.id = c.Fragment.NextHeader, true, c.Fragment.ID
		if h.later = c.Fragment.Off != 0; h.later {
			return Passed
		}
	} else {
		h.proto = c.Proto
	}
	h.upper = payload[c.Off:]
	return Passed
}

// ports are those of TCP.
func (h *headers) ports() (src, dst uint16, ok bool) {
	if h.proto != inet.ProtoTCP || len(h.upper) < 4 {
		return 0, 0, false
	}
	return be.Uint16(h.upper), be.Uint16(h.upper[2:]), true
}

// icmp: it is ICMP, of either family.
func (h *headers) icmp() bool {
	return h.kind == kindIPv4 && h.proto == inet.ProtoICMP || h.kind == kindIPv6 &&
		h.proto == inet.ProtoICMPv6
}

// icmpError: it says that a packet, whose beginning it quotes, did not arrive.
func (h *headers) icmpError() bool {
	if !h.icmp() || len(h.upper) == 0 {
		return false
	}
	if h.kind == kindIPv6 {
		return h.upper[0] < 128
	}
	switch h.upper[0] {
	case inet.ICMPUnreachable, 4, 5, inet.ICMPTimeExceeded, inet.ICMPParameterProblem:
		return true
	}
	return false
}

// quoted are the ports of the packet of TCP that an ICMP error is about. Checksums are the
// receiver's to verify.
func (h *headers) quoted() (src, dst uint16, ok bool) {
	if len(h.upper) < inet.ICMPLen {
		return 0, 0, false
	}
	q := h.upper[inet.ICMPLen:]
	if h.kind == kindIPv4 {
		if len(q) < inet.IPv4Len || q[0]>>4 != 4 || be.Uint16(q[6:])&0x1fff != 0 ||
			q[9] != inet.ProtoTCP {
			return 0, 0, false
		}
		n := int(q[0]&15) * 4
		if n < inet.IPv4Len || len(q) < n+4 {
			return 0, 0, false
		}
		q = q[n:]
	} else {
		if len(q) < inet.IPv6Len+4 || q[0]>>4 != 6 || q[6] != inet.ProtoTCP {
			return 0, 0, false
		}
		q = q[inet.IPv6Len:]
	}
	return be.Uint16(q), be.Uint16(q[2:]), true
}

// nd is neighbour discovery: types of ICMPv6 (RFC 4861, 4).
func (h *headers) nd() (typ uint8, ok bool) {
	if h.kind != kindIPv6 || h.proto != inet.ProtoICMPv6 || len(h.upper) == 0 ||
		h.upper[0] < inet.NDRouterSolicitation || h.upper[0] > ndRedirect {
		return 0, false
	}
	return h.upper[0], true
}

const ndRedirect = 137

// target is what a Neighbour Solicitation or Advertisement is about. An IPv4 address in IPv6's
// form is none, though tables have it so.
func (h *headers) target() (a inet.Addr, ok bool) {
	if len(h.upper) < inet.NDSolicitLen {
		return a, false
	}
	a = inet.Addr(h.upper[8:24])
	return a, !a.Is4() && a.IsStation()
}
