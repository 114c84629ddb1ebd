package inet

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is every station of the link.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// SwitchMAC is what rnicd switch answers with to a program that looks whether it may have an
// address that is not its own.
var SwitchMAC = MAC{2, 'r', 'n', 'i', 'c', 'd'}

// String gives the usual form, 02:00:5e:10:00:01. It allocates: not for the packet path.
func (m MAC) String() string {
	const hex = "0123456789abcdef"
	var s [17]byte
	for i, o := range m {
		s[3*i], s[3*i+1] = hex[o>>4], hex[o&15]
		if i < 5 {
			s[3*i+2] = ':'
		}
	}
	return string(s[:])
}

// IsGroup is true of a multicast or broadcast address, which no station may have as its own (IEEE
// 802.3, 3.2.3).
func (m MAC) IsGroup() bool { return m[0]&1 != 0 }

// IsZero is true of 00:00:00:00:00:00, which no station has.
func (m MAC) IsZero() bool { return m == MAC{} }

// Addr is an IP address without pointers: 16 octets, IPv4 in its v4-mapped form (RFC 4291,
// 2.5.5.2). It may be compared with ==, be a key, and stand in memory the garbage collector does
// not know. The zero Addr is IPv6's unspecified address and means "none".
type Addr [16]byte

// AddrFrom takes a over; a zone is lost, the invalid netip.Addr becomes the zero Addr.
func AddrFrom(a netip.Addr) Addr { return a.As16() }

// AddrFrom4 maps an IPv4 address.
func AddrFrom4(b [4]byte) Addr { return addrFromV4(binary.BigEndian.Uint32(b[:])) }

// addrFromV4 takes the address as a number: one store per half, where octet by octet the compiler
// makes sixteen.
func addrFromV4(v uint32) (a Addr) {
	binary.BigEndian.PutUint64(a[8:], v4Prefix<<32|uint64(v))
	return a
}

// high and low are the two halves as numbers; v4Prefix is what low holds above an IPv4 address.
func (a *Addr) high() uint64 { return binary.BigEndian.Uint64(a[:8]) }
func (a *Addr) low() uint64  { return binary.BigEndian.Uint64(a[8:]) }

const v4Prefix = 0xffff

// Is4 is true of an IPv4 address.
func (a Addr) Is4() bool { return a.high() == 0 && a.low()>>32 == v4Prefix }

// As4 is the IPv4 address. It panics unless Is4, as a wrong address on the wire would be worse.
func (a Addr) As4() [4]byte {
	if !a.Is4() {
		panic("inet: As4 of an address that is not IPv4")
	}
	return [4]byte(a[12:])
}

// Netip is the address unmapped; the zero Addr becomes "::".
func (a Addr) Netip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// IsUnspecified is true of 0.0.0.0 and ::.
func (a Addr) IsUnspecified() bool {
	return a.high() == 0 && (a.low() == 0 || a.low() == v4Prefix<<32)
}

// IsMulticast is true of 224.0.0.0/4 and ff00::/8.
func (a Addr) IsMulticast() bool {
	if a.Is4() {
		return a[12]>>4 == 0xe
	}
	return a[0] == 0xff
}

// IsBroadcast is true of the limited broadcast 255.255.255.255. A subnet's own takes its prefix to
// know.
func (a Addr) IsBroadcast() bool { return a.high() == 0 && a.low() == v4Prefix<<32|0xffffffff }

// IsLoopback is true of 127.0.0.0/8 and ::1, which must not appear on a wire (RFC 1122,
// 3.2.1.3(g)).
func (a Addr) IsLoopback() bool {
	if a.Is4() {
		return a[12] == 127
	}
	return a.high() == 0 && a.low() == 1
}

// IsStation is true when a may be one host's address as the source or next hop of a packet on a
// wire (RFC 1122, 3.2.1.3).
func (a Addr) IsStation() bool {
	if a.Is4() {
		return isStationV4(uint32(a.low()))
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback()
}

// CheckStation says why p, an address with its on-link prefix, can be no host's (RFC 1122,
// 3.2.1.3): IsStation, and neither end of an IPv4 network that has ends (RFC 3021: a /31 has none).
func CheckStation(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || a.Is4In6() || !AddrFrom(a).IsStation() {
		return errors.New("want the unicast address of a host, as 10.9.0.1/24 or fd09::1/64")
	}
	if a.Is4() && p.Bits() < 31 {
		v, host := binary.BigEndian.Uint32(a.AsSlice()), ^uint32(0)>>p.Bits()
		if v&host == 0 || v&host == host {
			return errors.New("the first and the last address of a network are no host's")
		}
	}
	return nil
}

// isStationV4 works on the number, as ParseIPv4 asks it of each packet.
func isStationV4(v uint32) bool {
	return v != 0 && v != 0xffffffff && v>>28 != 0xe && v>>24 != 127
}

// String is the address as people write it. It allocates: not for the packet path.
func (a Addr) String() string { return a.Netip().String() }

// IsLinkLocal is true of fe80::/10 (RFC 4291, 2.5.6).
func (a Addr) IsLinkLocal() bool { return a[0] == 0xfe && a[1]&0xc0 == 0x80 }

// AllNodes and AllRouters are the link's groups (RFC 4291, 2.7.1).
var (
	AllNodes   = Addr{0xff, 2, 15: 1}
	AllRouters = Addr{0xff, 2, 15: 2}
)

// AllNodes4 and AllRouters4 are those of IPv4 (RFC 1112, 4).
var (
	AllNodes4   = AddrFrom4([4]byte{224, 0, 0, 1})
	AllRouters4 = AddrFrom4([4]byte{224, 0, 0, 2})
)

// SolicitedNode is the group in which a is asked for (RFC 4291, 2.7.1).
func (a Addr) SolicitedNode() Addr {
	return Addr{0xff, 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
}

// GroupMAC is where frames to the multicast address a go (RFC 1112, 6.4; RFC 2464, 7).
func (a Addr) GroupMAC() MAC {
	if a.Is4() {
		return MAC{1, 0, 0x5e, a[13] & 0x7f, a[14], a[15]}
	}
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

// LinkLocal is the link-local address of a station by its modified EUI-64 (RFC 4291, appendix A).
func LinkLocal(m MAC) Addr {
	return Addr{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3],
		14: m[4], 15: m[5]}
}

// InPrefix is true when the first n bits of a and b, in the 128-bit form, are the same.
func (a Addr) InPrefix(b Addr, n int) bool { return a.common(&b) >= n }

// common is the number of leading bits that a and b share.
func (a *Addr) common(b *Addr) int {
	if x := a.high() ^ b.high(); x != 0 {
		return bits.LeadingZeros64(x)
	}
	return 64 + bits.LeadingZeros64(a.low()^b.low())
}
