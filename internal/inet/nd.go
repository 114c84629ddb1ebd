package inet

import "encoding/binary"

// ICMPv6 types of neighbour discovery (RFC 4861, 4).
const (
	NDRouterSolicitation    = 133
	NDRouterAdvertisement   = 134
	NDNeighbourSolicitation = 135
	NDNeighbourAdvert       = 136
	ndRedirect              = 137
)

// Lengths of the messages that we send: the fixed part, and with one link-layer address option.
const (
	NDSolicitLen = 24
	NDNeighLen   = 32
	NDRouterLen  = 16 // Router Solicitation with its option
)

// Options (RFC 4861, 4.6).
const (
	ndSourceMAC = 1
	ndTargetMAC = 2
	ndPrefix    = 3
	ndMTU       = 5
)

// ndHopLimit proves that no router passed the message on (RFC 4861, 3.1).
const ndHopLimit = 255

// NDPrefixesMax are kept of one advertisement; further ones are passed over.
const NDPrefixesMax = 8

// NDPrefix is a Prefix Information option (RFC 4861, 4.6.2). Lifetimes are in seconds; all ones is
// for ever.
type NDPrefix struct {
	Prefix           Addr
	Bits             int
	OnLink, Autoconf bool
	Valid, Preferred uint32
}

// ND is a parsed message of neighbour discovery. Which fields count depends on Type.
type ND struct {
	Type   uint8
	Target Addr // of a Neighbour Solicitation or Advertisement
	MAC    MAC  // the option that Type wants: source, or target of an Advertisement
	HasMAC bool

	Router, Solicited, Override bool // of a Neighbour Advertisement

	HopLimit      uint8  // of a Router Advertisement; 0 says nothing, as in the fields below
	LifetimeSec   uint16 // 0: no default router
	ReachableMs   uint32
	RetransMs     uint32
	MTU           uint32
	Prefixes      [NDPrefixesMax]NDPrefix
	PrefixesCount int
}

// ParseND reads and validates a message, b being the ICMPv6 part of a packet from src to dst that
// came with hopLimit (RFC 4861, 6.1.1, 6.1.2, 7.1.1 and 7.1.2, in their order). DropBadND: to be
// discarded in silence. Redirects are, too: a host may ignore them (RFC 4861, 8.3 binds only those
// that take them).
func ParseND(b []byte, src, dst Addr, hopLimit uint8, nd *ND) Drop {
	*nd = ND{}
	if hopLimit != ndHopLimit || len(b) < ICMPLen || b[1] != 0 {
		return DropBadND
	}
	if Checksum(b, PseudoSum(src, dst, ProtoICMPv6, len(b))) != 0 {
		return DropChecksum
	}
	nd.Type = b[0]
	var fixed int
	var want uint8
	switch nd.Type {
	case NDRouterSolicitation:
		fixed, want = 8, ndSourceMAC
	case NDRouterAdvertisement:
		fixed, want = 16, ndSourceMAC
	case NDNeighbourSolicitation:
		fixed, want = NDSolicitLen, ndSourceMAC
	case NDNeighbourAdvert:
		fixed, want = NDSolicitLen, ndTargetMAC
	default:
		return DropBadND
	}
	if len(b) < fixed || !nd.options(b[fixed:], want) || !nd.fixed(b, src, dst) {
		return DropBadND
	}
	return DropNone
}

// fixed reads what stands before the options and checks it against the addresses.
func (nd *ND) fixed(b []byte, src, dst Addr) bool {
	switch nd.Type {
	case NDRouterSolicitation:
		return !src.IsUnspecified() || !nd.HasMAC
	case NDRouterAdvertisement:
		nd.HopLimit = b[4]
		nd.LifetimeSec = binary.BigEndian.Uint16(b[6:8])
		nd.ReachableMs = binary.BigEndian.Uint32(b[8:12])
		nd.RetransMs = binary.BigEndian.Uint32(b[12:16])
		return src.IsLinkLocal()
	}
	nd.Target = Addr(b[8:24])
	if nd.Target.IsMulticast() || nd.Target.Is4() || !nd.Target.IsStation() {
		return false
	}
	if nd.Type == NDNeighbourSolicitation {
		return !src.IsUnspecified() || !nd.HasMAC && dst == nd.Target.SolicitedNode()
	}
	nd.Router, nd.Solicited, nd.Override = b[4]&0x80 != 0, b[4]&0x40 != 0, b[4]&0x20 != 0
	return !src.IsUnspecified() && (!nd.Solicited || !dst.IsMulticast())
}

// options reads those that are known and steps over the rest; false when one has length zero or
// leads beyond the end. want is the link-layer address option that belongs to the type.
func (nd *ND) options(b []byte, want uint8) bool {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || int(b[1])*8 > len(b) {
			return false
		}
		opt := b[:int(b[1])*8]
		b = b[len(opt):]
		switch {
		case opt[0] == want && len(opt) == 8:
			m := MAC(opt[2:8])
			if m.IsGroup() || m.IsZero() {
				return false
			}
			nd.MAC, nd.HasMAC = m, true
		case opt[0] == ndMTU && len(opt) == 8:
			nd.MTU = binary.BigEndian.Uint32(opt[4:8])
		case opt[0] == ndPrefix && len(opt) == 32 && nd.PrefixesCount < NDPrefixesMax && opt[2] <= 128:
			nd.Prefixes[nd.PrefixesCount] = NDPrefix{
				Prefix: Addr(opt[16:32]), Bits: int(opt[2]), OnLink: opt[3]&0x80 != 0,
				Autoconf: opt[3]&0x40 != 0,
				Valid:    binary.BigEndian.Uint32(opt[4:8]), Preferred: binary.BigEndian.Uint32(opt[8:12]),
			}
			nd.PrefixesCount++
		}
	}
	return true
}

// PutNeighbourSolicitation asks from src at mac for target and returns the length: NDNeighLen, or,
// for duplicate address detection from ::, NDSolicitLen, as there the option must not stand (RFC
// 4861, 4.3). dst is the IPv6 destination: the target's solicited-node group, or the target itself
// to see whether it is still there.
func PutNeighbourSolicitation(b []byte, mac MAC, src, dst, target Addr) int {
	n := NDNeighLen
	if src.IsUnspecified() {
		n = NDSolicitLen
	}
	putNeighbour(b[:n], target, ndSourceMAC, mac)
	putICMP(b[:n], NDNeighbourSolicitation, 0, 0, PseudoSum(src, dst, ProtoICMPv6, n))
	return n
}

// PutNeighbourAdvertisement answers for our address target at mac, with Override set (RFC 4861,
// 7.2.4); solicited unless dst is all-nodes, to which a solicitation from :: is answered.
func PutNeighbourAdvertisement(b []byte, mac MAC, src, dst, target Addr) int {
	word := uint32(0x20) << 24
	if !dst.IsMulticast() {
		word |= 0x40 << 24
	}
	b = b[:NDNeighLen]
	putNeighbour(b, target, ndTargetMAC, mac)
	putICMP(b, NDNeighbourAdvert, 0, word, PseudoSum(src, dst, ProtoICMPv6, NDNeighLen))
	return NDNeighLen
}

func putNeighbour(b []byte, target Addr, option uint8, mac MAC) {
	*(*Addr)(b[8:24]) = target
	if len(b) > NDSolicitLen {
		b[24], b[25] = option, 1
		*(*MAC)(b[26:32]) = mac
	}
}

// PutRouterSolicitation asks from src at mac, to AllRouters, for advertisements and returns the
// length.
func PutRouterSolicitation(b []byte, mac MAC, src Addr) int {
	b = b[:NDRouterLen]
	b[8], b[9] = ndSourceMAC, 1
	*(*MAC)(b[10:16]) = mac
	putICMP(b, NDRouterSolicitation, 0, 0, PseudoSum(src, AllRouters, ProtoICMPv6, NDRouterLen))
	return NDRouterLen
}
