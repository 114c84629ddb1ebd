package inet

import "encoding/binary"

// ICMPv6 message types (RFC 4443, 2.1; RFC 4861, 4). Those below 128 are errors.
const (
	ICMP6Unreachable      = 1
	ICMP6TooBig           = 2
	ICMP6TimeExceeded     = 3
	ICMP6ParameterProblem = 4
	ICMP6Echo             = 128
	ICMP6EchoReply        = 129
	icmp6Informational    = 128
)

// Codes of errors that we send, or tell apart.
const (
	ICMPNetUnreachable     = 0 // of ICMPUnreachable
	ICMPNetUnknown         = 6
	ICMPNetTOS             = 11 // for this type of service
	ICMPProtoUnreachable   = 2
	ICMPPortUnreachable    = 3
	ICMP6NoRoute           = 0 // of ICMP6Unreachable
	ICMP6PortUnreachable   = 4
	ICMPReassemblyExceeded = 1 // of both Time Exceeded
)

// icmpQuoteMax keeps an ICMPv4 error within the 576 octets every host takes (RFC 1812, 4.3.2.3);
// icmp6QuoteMax an ICMPv6 error within 1280 (RFC 4443, 2.4(c)).
const (
	icmpQuoteMax  = 576 - IPv4Len - ICMPLen
	icmp6QuoteMax = IPv6MTUMin - IPv6Len - ICMPLen
)

// ICMPErrorMax is the longest message that PutICMPError and PutICMP6Error write.
const ICMPErrorMax = IPv6MTUMin - IPv6Len

// EchoReply6 is EchoReply for ICMPv6, whose checksum covers a pseudo header (RFC 4443, 2.3).
func EchoReply6(b []byte, src, dst Addr) bool {
	if len(b) < ICMPLen || b[0] != ICMP6Echo || b[1] != 0 ||
		Checksum(b, PseudoSum(src, dst, ProtoICMPv6, len(b))) != 0 {
		return false
	}
	// The reply's pseudo header has the addresses swapped, which sums the same. It is never all
	// zero.
	sum := UpdateChecksum(binary.BigEndian.Uint16(b[2:4]), ICMP6Echo<<8, ICMP6EchoReply<<8)
	b[0] = ICMP6EchoReply
	binary.BigEndian.PutUint16(b[2:4], sum)
	return true
}

// ParseICMP6Error reads an ICMPv6 error, b being the ICMPv6 part of a packet from src to dst, of
// any type below 128: an unknown one goes up, too (RFC 4443, 2.4(a)). It checks the checksum and
// walks the quoted packet to its transport. False, and DropBadICMP, for informational types, a bad
// checksum or a quote that does not reach 8 octets of transport.
func ParseICMP6Error(b []byte, src, dst Addr) (ICMPError, bool) {
	if len(b) < ICMPLen+IPv6Len+quotedMin || b[0] >= icmp6Informational {
		return ICMPError{}, false
	}
	if Checksum(b, PseudoSum(src, dst, ProtoICMPv6, len(b))) != 0 {
		return ICMPError{}, false
	}
	e := ICMPError{Type: b[0], Code: b[1]}
	if e.Type == ICMP6TooBig {
		e.MTU = binary.BigEndian.Uint32(b[4:8])
	}
	p := (*[IPv6Len]byte)(b[ICMPLen:])
	if p[0]>>4 != 6 {
		return ICMPError{}, false
	}
	e.Src, e.Dst = Addr(p[8:24]), Addr(p[24:40])
	if e.Src.Is4() || e.Dst.Is4() {
		return ICMPError{}, false
	}
	payloadLen := int(binary.BigEndian.Uint16(p[4:6]))
	e.TotalLen = IPv6Len + payloadLen
	quoted := b[ICMPLen+IPv6Len:]
	quoted = quoted[:min(len(quoted), payloadLen)]
	c, d := WalkIPv6(quoted, p[6], IPv6Len, false)
	if d != DropNone || c.HasFragment || len(quoted)-c.Off < quotedMin {
		return ICMPError{}, false // a fragment of ours is no segment: TCP sends none
	}
	e.Proto, e.Quoted = c.Proto, quoted[c.Off:]
	return e, true
}

// MayReport says whether an ICMPv4 error may be sent about packet, which begins with a sound IPv4
// header and came to one of our unicast addresses from a station (RFC 1122, 3.2.2): not about a
// later fragment, nor about ICMP other than queries.
func MayReport(packet []byte) bool {
	p := (*[IPv4Len]byte)(packet)
	if binary.BigEndian.Uint16(p[6:8])&ipv4OffMask != 0 {
		return false
	}
	if p[9] != ProtoICMP {
		return true
	}
	hdrLen := int(p[0]&15) * 4
	if len(packet) <= hdrLen {
		return false
	}
	switch packet[hdrLen] {
	case ICMPEchoReply, ICMPEcho, 13, 14, 15, 16, 17, 18:
		return true
	}
	return false
}

// MayReport6 says whether an ICMPv6 error may be sent about packet, which begins with a sound IPv6
// header and has a source that is one station's (RFC 4443, 2.4(e)): not about an ICMPv6 error or
// Redirect. A chain that cannot be walked hides no error of ours: such packets are only reported
// from where the walk ended.
func MayReport6(packet []byte) bool {
	p := (*[IPv6Len]byte)(packet)
	payload := packet[IPv6Len:]
	c, d := WalkIPv6(payload, p[6], IPv6Len, false)
	if c.HasFragment && d == DropNone {
		if c.Fragment.Off != 0 {
			return false
		}
		payload = payload[c.Off:]
		c, d = WalkIPv6(payload, c.Fragment.NextHeader, IPv6Len, true)
	}
	if d != DropNone || c.Proto != ProtoICMPv6 {
		return true
	}
	return len(payload) > c.Off && payload[c.Off] >= icmp6Informational && payload[c.Off] != ndRedirect
}

// PutICMPError writes an ICMPv4 error that quotes packet into b, which has room for ICMPErrorMax
// octets, and returns its length. word is the second word of the message: unused, or a pointer in
// its first octet (RFC 792).
func PutICMPError(b []byte, typ, code uint8, word uint32, packet []byte) int {
	n := ICMPLen + copy(b[ICMPLen:], packet[:min(len(packet), icmpQuoteMax)])
	putICMP(b[:n], typ, code, word, 0)
	return n
}

// PutICMP6Error is PutICMPError for an ICMPv6 error from src to dst (RFC 4443, 3).
func PutICMP6Error(b []byte, typ, code uint8, word uint32, packet []byte, src, dst Addr) int {
	n := ICMPLen + copy(b[ICMPLen:], packet[:min(len(packet), icmp6QuoteMax)])
	putICMP(b[:n], typ, code, word, PseudoSum(src, dst, ProtoICMPv6, n))
	return n
}

func putICMP(b []byte, typ, code uint8, word uint32, sum uint64) {
	binary.BigEndian.PutUint32(b[0:4], uint32(typ)<<24|uint32(code)<<16)
	binary.BigEndian.PutUint32(b[4:8], word)
	binary.BigEndian.PutUint16(b[2:4], Checksum(b, sum))
}
