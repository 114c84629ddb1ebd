package tcp

import "encoding/binary"

// Flags of a TCP header.
type Flags uint8

const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// HeaderLenMin is the length of a header without options; headerLenMax with as many as the data
// offset can say.
const (
	HeaderLenMin = 20
	headerLenMax = 60
)

// Segment is a decoded segment. Payload octets stay with the caller.
type Segment struct {
	SrcPort, DstPort uint16
	Seq, Ack         Seq
	Flags            Flags
	Window           uint16
	Urgent           uint16
	TOS              uint8 // of the IP header, for its ECN bits: set by the caller, not by Parse
	HdrLen           int   // where the payload begins
	Len              int   // payload octets
	// of several segments taken as one (Conn.Coalescible), the octets of each but the last; 0: it is
	// one
	Part    int
	Options Options
}

// SeqLen is SEG.LEN of RFC 9293 section 3.4: payload, and one each for SYN and FIN.
func (s *Segment) SeqLen() int {
	return s.Len + int(s.Flags&FIN) + int(s.Flags&SYN>>1)
}

// Parse decodes the header in b (the TCP part of a packet) into s without allocating. The checksum
// is not looked at: the Poller knows whether hardware did. Reserved bits are ignored (RFC 9293
// section 3.1); options that are unknown, or of the wrong length for their kind, are skipped; a
// length that leads out of the header drops the segment.
func Parse(b []byte, s *Segment) Drop {
	if len(b) < HeaderLenMin {
		return DropShort
	}
	h := (*[HeaderLenMin]byte)(b)
	hdrLen := int(h[12]>>4) * 4
	if hdrLen < HeaderLenMin || hdrLen > len(b) {
		return DropHeaderLen
	}
	s.SrcPort = binary.BigEndian.Uint16(h[0:])
	s.DstPort = binary.BigEndian.Uint16(h[2:])
	s.Seq = Seq(binary.BigEndian.Uint32(h[4:]))
	s.Ack = Seq(binary.BigEndian.Uint32(h[8:]))
	s.Flags = Flags(h[13])
	s.Window = binary.BigEndian.Uint16(h[14:])
	s.Urgent = binary.BigEndian.Uint16(h[18:])
	s.HdrLen = hdrLen
	s.Len, s.Part = len(b)-hdrLen, 0
	return s.Options.parse(b[HeaderLenMin:hdrLen])
}
