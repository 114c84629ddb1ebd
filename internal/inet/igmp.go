package inet

import "encoding/binary"

// Types of IGMP (RFC 3376, 4; RFC 2236, 2). Version 1 is not spoken: its Queries are ignored, and
// its Reports suppress as those of version 2 do.
const (
	igmpQuery   = 0x11
	igmpReport1 = 0x12
	igmpReport2 = 0x16
	igmpLeave2  = 0x17
	igmpReport3 = 0x22
)

// Lengths of IGMP's messages and their parts.
const (
	igmpLen       = 8  // every message of version 2
	igmpQueryLen  = 12 // version 3's Query, sources not counted
	igmpRecordLen = 8  // Group Record, sources not counted; a Report without records is as MLD's
	addr4Len      = 4
)

// AllIGMPRouters is where version 3's Reports go (RFC 3376, 4.2.14).
var AllIGMPRouters = AddrFrom4([4]byte{224, 0, 0, 22})

// ParseIGMP reads and validates a Query, or a Report or Leave of version 2, that came in the packet
// h whose IP options are those. DropBadIGMP: to be discarded in silence. m says it as MLD would.
func ParseIGMP(h *IPv4, options, b []byte, m *MLD) Drop {
	*m = MLD{four: true}
	if len(b) < igmpLen || h.TTL != MLDHopLimit {
		return DropBadIGMP
	}
	if Checksum(b, 0) != 0 {
		return DropChecksum
	}
	group := AddrFrom4([4]byte(b[4:8]))
	switch b[0] {
	case igmpReport1, igmpReport2:
		m.Type, m.Version, m.Group = MLDReport1, 1, group
		if !group.IsMulticast() || group != h.Dst {
			return DropBadIGMP
		}
		return DropNone
	case igmpLeave2:
		m.Type, m.Version, m.Group = MLDDone, 1, group
		return DropNone
	case igmpQuery:
	default:
		return DropBadIGMP
	}
	m.Type, m.Version = MLDQuery, 1
	general := group.IsUnspecified()
	// RFC 3376, 9.1: forged ones come from far away, or are to one host
	if general && h.Dst != AllNodes4 || !general && (!group.IsMulticast() || h.Dst != group) ||
		!routerAlert4(options) {
		return DropBadIGMP
	}
	if !general {
		m.Group = group
	}
	code := uint32(b[1])
	switch {
	case len(b) == igmpLen && code != 0:
		m.MaxDelayNs = int64(code) * igmpTickNs
		return DropNone
	case len(b) < igmpQueryLen: // version 1's, or none (RFC 3376, 7.1)
		return DropBadIGMP
	}
	n := int(binary.BigEndian.Uint16(b[10:12])) * addr4Len
	if n > len(b)-igmpQueryLen {
		return DropBadIGMP
	}
	m.Version, m.sources = 2, b[igmpQueryLen:igmpQueryLen+n]
	m.MaxDelayNs = int64(mldFloat(code, 4)) * igmpTickNs
	m.Robustness, m.IntervalSec = int(b[8]&7), mldFloat(uint32(b[9]), 4)
	return DropNone
}

const igmpTickNs = 100_000_000 // a tenth of a second: the unit of Max Resp Code

// The options of IPv4 that are looked at, and Router Alert's length (RFC 791, 3.1; RFC 2113, 2.1).
const (
	option4End      = 0
	option4Nop      = 1
	option4Alert    = 148
	option4AlertLen = 4
)

// routerAlert4 says whether the options of an IPv4 header have the Router Alert.
func routerAlert4(b []byte) bool {
	for len(b) > 0 && b[0] != option4End {
		n := 1
		if b[0] != option4Nop {
			if len(b) < 2 || int(b[1]) < 2 || int(b[1]) > len(b) {
				return false
			}
			n = int(b[1])
		}
		if b[0] == option4Alert && n == option4AlertLen {
			return true
		}
		b = b[n:]
	}
	return false
}

// IGMPHeaderLen is the length of the IPv4 header of what we send.
const IGMPHeaderLen = IPv4Len + option4AlertLen

// PutIGMPHeader writes the IPv4 header of n octets of IGMP, with the Router Alert (RFC 3376, 4).
func PutIGMPHeader(b []byte, src, dst Addr, n int) {
	const precedence = 0xc0 // RFC 3376, 4: Internetwork Control
	h := IPv4{TOS: precedence, DF: true, TTL: MLDHopLimit, Proto: ProtoIGMP, Src: src, Dst: dst,
		TotalLen: IGMPHeaderLen + n}
	h.Put(b)
	p := (*[IGMPHeaderLen]byte)(b)
	p[0] = 4<<4 | IGMPHeaderLen/4
	copy(p[IPv4Len:], []byte{option4Alert, option4AlertLen, 0, 0})
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:12], Checksum(p[:], 0))
}

// putIGMP2 writes the message of version 2 that means what MLDv1's does, and returns the length.
func putIGMP2(b []byte, typ uint8, group Addr) int {
	b = b[:igmpLen]
	a := group.As4()
	b[0], b[1], b[2], b[3] = igmpReport2, 0, 0, 0
	if typ == MLDDone {
		b[0] = igmpLeave2
	}
	copy(b[4:], a[:])
	binary.BigEndian.PutUint16(b[2:4], Checksum(b, 0))
	return igmpLen
}

// putIGMPRecord writes a Group Record and returns the length.
func putIGMPRecord(b []byte, typ uint8, group Addr, sources []Addr) int {
	binary.BigEndian.PutUint32(b[0:4], uint32(typ)<<24|uint32(len(sources)))
	*(*[4]byte)(b[4:8]) = group.As4()
	for i, s := range sources {
		*(*[4]byte)(b[igmpRecordLen+i*addr4Len:]) = s.As4()
	}
	return igmpRecordLen + len(sources)*addr4Len
}

// putIGMPReport makes b a Report of version 3, whose records are in their place.
func putIGMPReport(b []byte, records int) {
	binary.BigEndian.PutUint32(b[0:4], igmpReport3<<24)
	binary.BigEndian.PutUint32(b[4:8], uint32(records))
	binary.BigEndian.PutUint16(b[2:4], Checksum(b, 0))
}
