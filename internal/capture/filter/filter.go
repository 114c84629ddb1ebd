// Package filter decides which frames a capture keeps: a small language in the manner of pcap's,
// compiled once and evaluated on raw Ethernet frames.
//
//	expression := term { "or" term }          "||" is or, "&&" is and, "!" is not
//	term       := factor { "and" factor }
//	factor     := "not" factor | "(" expression ")" | primitive
//	primitive  := protocol | [protocol] [side] what | "vlan" [number] | "inbound" | "outbound"
//	protocol   := "ip" | "ip6" | "arp" | "tcp" | "udp" | "icmp" | "icmp6"
//	side       := "src" | "dst"
//	what       := "host" address | "net" prefix | "port" number | "portrange" number "-" number |
//	              "ether" mac | address
//
// Without a side either side may match. host and net also match the protocol addresses of ARP.
// Unlike pcap's, a frame's VLAN tags, up to two, never hide what is in it: "tcp" matches tagged
// frames too, and "vlan 5" those with a tag of that number. Ports are those of TCP and UDP in
// the first fragment of a packet; IPv6 extension headers are walked, up to extensionsMax.
//
// A Program is bounded: programMax tests, each made at most once for a frame, and only forward. It
// neither allocates nor locks, so that the Poller's core can run it.
package filter

import (
	"net/netip"
)

const (
	// textMax bounds an expression, programMax what it compiles to, depthMax its parentheses and
	// nots.
	textMax    = 4096
	programMax = 256
	depthMax   = 64
)

// side says which end's address or port is looked at.
type side uint8

const (
	either side = iota
	source
	destination
)

// op is one test.
type op uint8

const (
	opProtocol op = iota // view.has contains all of bits
	opVLAN               // a tag has number lo
	opNet                // an address is in addr/bits
	opMAC                // an Ethernet address is mac
	opPorts              // a port is from lo to hi
	opInbound            // the frame was received
)

// test is an instruction: where to go on when it holds, and when it does not.
type test struct {
	op        op
	side      side
	bits      uint16
	lo, hi    uint16
	mac       [6]byte
	addr      [16]byte // IPv4: the first four
	mask      [16]byte
	yes, no   int32 // indices of tests, or accept and reject
	addrIsIP4 bool
}

const (
	accept int32 = -1
	reject int32 = -2
)

// Program is a compiled expression. Match is for any goroutines at once.
type Program struct {
	tests []test
	entry int32
	text  string
}

// String is the expression.
func (p *Program) String() string { return p.text }

// Match says whether a frame is wanted. A frame that is cut short matches what its octets tell.
func (p *Program) Match(frame []byte, received bool) bool {
	var v view
	v.parse(frame)
	at := p.entry
	for at >= 0 {
		t := &p.tests[at]
		if t.holds(&v, received) {
			at = t.yes
		} else {
			at = t.no
		}
	}
	return at == accept
}

func (t *test) holds(v *view, received bool) bool {
	switch t.op {
	case opProtocol:
		return v.has&t.bits == t.bits
	case opVLAN:
		return v.tags > 0 && v.tag[0] == t.lo || v.tags > 1 && v.tag[1] == t.lo
	case opNet:
		if v.addrs == nil || v.addrsIP4 != t.addrIsIP4 {
			return false
		}
		return t.side != destination && t.within(v.src()) || t.side != source && t.within(v.dst())
	case opMAC:
		return v.macs != nil && (t.side != destination && [6]byte(v.macs[6:12]) == t.mac ||
			t.side != source && [6]byte(v.macs[:6]) == t.mac)
	case opPorts:
		if v.has&hasPorts == 0 || v.has&t.bits != t.bits {
			return false
		}
		return t.side != destination && v.srcPort >= t.lo && v.srcPort <= t.hi || t.side != source &&
			v.dstPort >= t.lo && v.dstPort <= t.hi
	case opInbound:
		return received
	}
	return false
}

func (t *test) within(addr []byte) bool {
	for i, b := range addr {
		if b&t.mask[i] != t.addr[i] {
			return false
		}
	}
	return true
}

func netTest(s side, p netip.Prefix) test {
	t := test{op: opNet, side: s, addrIsIP4: p.Addr().Is4()}
	copy(t.addr[:], p.Masked().Addr().AsSlice())
	for i := range p.Bits() {
		t.mask[i/8] |= 0x80 >> (i % 8)
	}
	return t
}
