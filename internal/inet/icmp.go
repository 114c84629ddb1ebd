package inet

import "encoding/binary"

// ICMP message types (RFC 792).
const (
	ICMPEchoReply        = 0
	ICMPUnreachable      = 3
	ICMPEcho             = 8
	ICMPTimeExceeded     = 11
	ICMPParameterProblem = 12
)

// ICMPFragNeeded is the code of ICMPUnreachable that carries a path MTU (RFC 1191, 4).
const ICMPFragNeeded = 4

// quotedMin is how much of its payload a quoted packet must have (RFC 792: "the first 64 bits").
const quotedMin = 8

// EchoReply turns an ICMPv4 echo request (the ICMP part, b, ending where the IP packet ends) into
// its reply in place: identifier, sequence number and data stay. False: not a valid echo request, b
// is unchanged, to be dropped as DropBadICMP. The caller swaps the addresses and must not answer a
// request to a broadcast or multicast address.
func EchoReply(b []byte, checksumGood bool) bool {
	if len(b) < ICMPLen || b[0] != ICMPEcho || b[1] != 0 {
		return false
	}
	if !checksumGood && Checksum(b, 0) != 0 {
		return false
	}
	sum := UpdateChecksum(binary.BigEndian.Uint16(b[2:4]), ICMPEcho<<8, ICMPEchoReply<<8)
	if sum == 0 {
		// The two zeros of ones-complement: with all else zero only 0xffff verifies, otherwise both
		// do.
		sum = 0xffff
	}
	b[0] = ICMPEchoReply
	binary.BigEndian.PutUint16(b[2:4], sum)
	return true
}

// ICMPError is the part of a received ICMP error a transport needs.
type ICMPError struct {
	Type, Code uint8
	MTU        uint32 // of Fragmentation Needed or Packet Too Big; 0 from a router older than RFC 1191
	Src, Dst   Addr   // of the quoted packet, whose family tells that of Type
	TotalLen   int    // of the quoted packet, as it was sent
	Proto      uint8
	Quoted     []byte // the quoted transport octets, at least 8; aliases the input
}

// ParseICMPError reads Destination Unreachable, Time Exceeded and Parameter Problem (RFC 792), b
// being the ICMP part. It checks the checksum and finds the quoted transport by the quoted header's
// own length. False, and DropBadICMP, for any other type (Source Quench is dead, RFC 6633), a bad
// checksum, or a quoted packet that is not the beginning of an IPv4 packet. The quoted header's
// checksum is not looked at: routers change it on the way.
//
// Nothing of this proves its sender. A transport must find Src its own and match ports and
// sequence number (RFC 5927, 4).
func ParseICMPError(b []byte) (ICMPError, bool) {
	if len(b) < ICMPLen+IPv4Len+quotedMin {
		return ICMPError{}, false
	}
	e := ICMPError{Type: b[0], Code: b[1]}
	switch e.Type {
	case ICMPUnreachable, ICMPTimeExceeded, ICMPParameterProblem:
	default:
		return ICMPError{}, false
	}
	if Checksum(b, 0) != 0 {
		return ICMPError{}, false
	}
	if e.Type == ICMPUnreachable && e.Code == ICMPFragNeeded {
		e.MTU = uint32(binary.BigEndian.Uint16(b[6:8]))
	}
	quoted := b[ICMPLen:]
	p := (*[IPv4Len]byte)(quoted)
	hdrLen, totalLen := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:4]))
	if p[0]>>4 != 4 || hdrLen < IPv4Len || len(quoted)-quotedMin < hdrLen ||
		totalLen-quotedMin < hdrLen {
		return ICMPError{}, false
	}
	if binary.BigEndian.Uint16(p[6:8])&ipv4OffMask != 0 {
		return ICMPError{}, false // a later fragment has no transport header
	}
	// What follows the quoted packet is padding or extensions (RFC 4884).
	e.Quoted = quoted[hdrLen:min(len(quoted), totalLen)]
	e.Src = addrFromV4(binary.BigEndian.Uint32(p[12:16]))
	e.Dst = addrFromV4(binary.BigEndian.Uint32(p[16:20]))
	e.Proto = p[9]
	e.TotalLen = totalLen
	return e, true
}
