package inet

import "encoding/binary"

// UDPLen is the length of a UDP header.
const UDPLen = 8

// UDP is a UDP header (RFC 768).
type UDP struct {
	SrcPort, DstPort uint16
	Length           int // header included
}

// ParseUDP checks the length of a datagram and, unless checksumGood, its checksum, of which
// DropChecksumLeft says that its sender's kernel left it out. payload aliases b and ends at Length.
// A checksum of 0 is none, which IPv6 does not allow (RFC 8200, 8.1).
func ParseUDP(b []byte, src, dst *Addr, checksumGood bool) (h UDP, payload []byte, d Drop) {
	if len(b) < UDPLen {
		return h, nil, DropShort
	}
	p := (*[UDPLen]byte)(b)
	h.SrcPort, h.DstPort = binary.BigEndian.Uint16(p[0:]), binary.BigEndian.Uint16(p[2:])
	h.Length = int(binary.BigEndian.Uint16(p[4:]))
	if h.Length < UDPLen || h.Length > len(b) {
		return h, nil, DropTotalLen
	}
	switch none := p[6]|p[7] == 0; {
	case none && !dst.Is4():
		return h, nil, DropChecksum
	case none || checksumGood:
	default:
		pseudo := PseudoSum(*src, *dst, ProtoUDP, h.Length)
		if Checksum(b[:h.Length], pseudo) == 0 {
			break
		}
		if binary.BigEndian.Uint16(p[6:]) == Fold(pseudo) {
			return h, nil, DropChecksumLeft
		}
		return h, nil, DropChecksum
	}
	return h, b[UDPLen:h.Length], DropNone
}

// UDPPort is the destination of b, which has a whole header.
func UDPPort(b []byte) uint16 { return binary.BigEndian.Uint16((*[UDPLen]byte)(b)[2:]) }

// Put writes the header in front of the payload that is in b already, with the checksum of both.
// Length must be that of b.
func (h *UDP) Put(b []byte, src, dst *Addr) {
	p := (*[UDPLen]byte)(b)
	binary.BigEndian.PutUint16(p[0:], h.SrcPort)
	binary.BigEndian.PutUint16(p[2:], h.DstPort)
	binary.BigEndian.PutUint16(p[4:], uint16(h.Length))
	p[6], p[7] = 0, 0
	sum := Checksum(b[:h.Length], PseudoSum(*src, *dst, ProtoUDP, h.Length))
	if sum == 0 {
		sum = 0xffff // RFC 768: 0 would be none
	}
	binary.BigEndian.PutUint16(p[6:], sum)
}
