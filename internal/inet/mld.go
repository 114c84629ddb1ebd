package inet

import "encoding/binary"

// ICMPv6 types of multicast listener discovery (RFC 2710, 3; RFC 3810, 5).
const (
	MLDQuery   = 130
	MLDReport1 = 131 // of MLDv1
	MLDDone    = 132 // of MLDv1
	MLDReport2 = 143
)

// MLDHopLimit is the hop limit of every MLD message: no router passes it on.
const MLDHopLimit = 1

// Lengths of MLD's messages and their parts, after the ICMPv6 header's first four octets and with
// them.
const (
	mld1Len      = 24 // every MLDv1 message
	mldQueryLen  = 28 // MLDv2 Query, sources not counted
	mldReportLen = 8  // MLDv2 Report, records not counted
	mldRecordLen = 20 // Multicast Address Record, sources not counted
	addrLen      = 16
)

// Types of Multicast Address Record that a host sends (RFC 3810, 5.2.12). Its groups are in mode
// EXCLUDE with no source excluded, so that BLOCK, ALLOW and the change of a source do not occur.
const (
	recordIsInclude = 1
	recordIsExclude = 2
	recordToInclude = 3
	recordToExclude = 4
)

// AllMLDRouters is where MLDv2 Reports go: all MLDv2-capable routers (RFC 3810, 5.2.14).
var AllMLDRouters = Addr{0xff, 2, 15: 0x16}

// MLD is a parsed message of multicast listener discovery. The fields below Group are a Query's.
// Its sources alias the octets that were parsed. IGMP's messages are read as those of MLD that mean
// the same: ParseIGMP.
type MLD struct {
	Type  uint8
	Group Addr // ::, in a Query: of all groups

	Version     int    // 1 or 2
	MaxDelayNs  int64  // Maximum Response Delay
	Robustness  int    // QRV; 0: not said, as always in MLDv1
	IntervalSec uint32 // QQIC; 0: not said
	sources     []byte
	four        bool // IPv4's
}

// Sources is how many sources a Multicast Address and Source Specific Query asks for.
func (m *MLD) Sources() int {
	if m.four {
		return len(m.sources) / addr4Len
	}
	return len(m.sources) / addrLen
}

// Source is one of them.
func (m *MLD) Source(i int) Addr {
	if m.four {
		return AddrFrom4([4]byte(m.sources[i*addr4Len:]))
	}
	return Addr(m.sources[i*addrLen:])
}

// ParseMLD reads and validates a Query, or a Report or Done of MLDv1, b being the ICMPv6 part of a
// packet from src to dst that came with hopLimit. alert says that the packet has the Router Alert
// option for MLD (Chain.Alert). DropBadMLD: to be discarded in silence (RFC 3810, 5.1.14, 6.2, 8.1;
// RFC 2710, 3). What follows the last field is covered by the checksum and ignored (RFC 3810,
// 5.1.12).
func ParseMLD(b []byte, src, dst Addr, hopLimit uint8, alert bool, m *MLD) Drop {
	*m = MLD{}
	if !src.IsLinkLocal() || hopLimit != MLDHopLimit || !alert || len(b) < mld1Len {
		return DropBadMLD
	}
	if Checksum(b, PseudoSum(src, dst, ProtoICMPv6, len(b))) != 0 {
		return DropChecksum
	}
	m.Type, m.Version, m.Group = b[0], 1, Addr(b[8:24])
	code := uint32(binary.BigEndian.Uint16(b[4:6]))
	m.MaxDelayNs = int64(code) * 1_000_000
	switch {
	case m.Type == MLDReport1 || m.Type == MLDDone:
		if !m.Group.IsMulticast() || m.Group.Is4() {
			return DropBadMLD
		}
		return DropNone
	case m.Type != MLDQuery, !m.Group.IsUnspecified() && !m.Group.IsMulticast(), m.Group.Is4():
		return DropBadMLD
	case len(b) == mld1Len:
		return DropNone
	case len(b) < mldQueryLen: // neither version's (RFC 3810, 8.1)
		return DropBadMLD
	}
	n := int(binary.BigEndian.Uint16(b[26:28])) * addrLen
	if n > len(b)-mldQueryLen {
		return DropBadMLD
	}
	m.Version, m.sources = 2, b[mldQueryLen:mldQueryLen+n]
	m.MaxDelayNs = int64(mldFloat(code, 12)) * 1_000_000
	m.Robustness, m.IntervalSec = int(b[24]&7), mldFloat(uint32(b[25]), 4)
	return DropNone
}

// mldFloat reads a code whose upper half stands for a number in floating point, the lowest bits
// being its mantissa (RFC 3810, 5.1.3 and 5.1.9).
func mldFloat(code uint32, bits int) uint32 {
	if code < 1<<(bits+3) {
		return code
	}
	return (code&(1<<bits-1) | 1<<bits) << (code>>bits&7 + 3)
}

// RouterAlertLen is the length of a Hop-by-Hop header with the Router Alert option.
const RouterAlertLen = 8

// The option (RFC 2711, 2.1), its length and its value for MLD.
const (
	optionRouterAlert    = 5
	optionRouterAlertLen = 2
)

// putRouterAlert writes the Hop-by-Hop header of an MLD message: the option, and PadN of two
// octets.
func putRouterAlert(b []byte) {
	copy(b, []byte{ProtoICMPv6, 0, optionRouterAlert, optionRouterAlertLen, 0, 0, 1, 0})
}

// putMLD1 writes an MLDv1 Report or Done for group, from src to dst, and returns the length.
func putMLD1(b []byte, typ uint8, src, dst, group Addr) int {
	b = b[:mld1Len]
	*(*Addr)(b[8:24]) = group
	putICMP(b, typ, 0, 0, PseudoSum(src, dst, ProtoICMPv6, mld1Len))
	return mld1Len
}

// putMLDRecord writes a Multicast Address Record and returns the length.
func putMLDRecord(b []byte, typ uint8, group Addr, sources []Addr) int {
	binary.BigEndian.PutUint32(b[0:4], uint32(typ)<<24|uint32(len(sources)))
	*(*Addr)(b[4:20]) = group
	for i, s := range sources {
		*(*Addr)(b[mldRecordLen+i*addrLen:]) = s
	}
	return mldRecordLen + len(sources)*addrLen
}

// putMLDReport makes b an MLDv2 Report from src, whose records are in their place.
func putMLDReport(b []byte, records int, src Addr) {
	putICMP(b, MLDReport2, 0, uint32(records), PseudoSum(src, AllMLDRouters, ProtoICMPv6, len(b)))
}
