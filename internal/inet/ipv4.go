package inet

import "encoding/binary"

// DefaultTTL is sent when IPv4.TTL is 0 (RFC 1122, 3.2.1.7; the number is RFC 1700's).
const DefaultTTL = 64

// IPv4 is a parsed IPv4 header (RFC 791, 3.1).
type IPv4 struct {
	TOS      uint8 // DSCP and, in the low two bits, ECN (RFC 3168, 5)
	ID       uint16
	DF, MF   bool
	FragOff  int   // octets
	TTL      uint8 // Put writes DefaultTTL for 0
	Proto    uint8
	Src, Dst Addr
	HdrLen   int // options included
	TotalLen int
}

// The 16 bits that hold flags and fragment offset.
const (
	ipv4DF      = 0x4000
	ipv4MF      = 0x2000
	ipv4OffMask = 0x1fff // in units of 8 octets
)

// ParseIPv4 checks version, lengths, the source address and, unless checksumGood, the header
// checksum. payload aliases b and ends at TotalLen, so Ethernet padding is cut. The order of the
// checks is RFC 1122, 3.2.1.1 to 3.2.1.3; a packet that fails one is to be discarded in silence.
// Options are stepped over by length, whatever they say.
//
// DropFragment comes last and with h and payload filled: the fragment is otherwise sound, for a
// reassembler or a counter. TTL is not looked at, as a host must not discard by it (RFC 1122,
// 3.2.1.7). Whether Dst is ours is the caller's to say.
func ParseIPv4(b []byte, checksumGood bool) (h IPv4, payload []byte, d Drop) {
	if len(b) < IPv4Len {
		return h, nil, DropShort
	}
	p := (*[IPv4Len]byte)(b)
	if p[0]>>4 != 4 {
		return h, nil, DropVersion
	}
	hdrLen, totalLen := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:4]))
	if hdrLen < IPv4Len || hdrLen > len(b) {
		return h, nil, DropHeaderLen
	}
	if totalLen < hdrLen || totalLen > len(b) {
		return h, nil, DropTotalLen
	}
	if !checksumGood && !headerSumGood(b, p, hdrLen) {
		return h, nil, DropChecksum
	}
	if source := binary.BigEndian.Uint32(p[12:16]); !isStationV4(source) &&
		!(source == 0 && p[9] == ProtoIGMP) { // a switch without an address asks so (RFC 4541, 2.1.1)
		return h, nil, DropSource
	}
	h.parse(p, hdrLen, totalLen)
	if h.MF || h.FragOff != 0 {
		return h, b[hdrLen:totalLen], DropFragment
	}
	return h, b[hdrLen:totalLen], DropNone
}

// headerSumGood has a short cut for the header without options: five words instead of a loop.
func headerSumGood(b []byte, p *[IPv4Len]byte, hdrLen int) bool {
	if hdrLen == IPv4Len {
		return headerSum(p) == 0xffff
	}
	return Fold(Sum(b[:hdrLen], 0)) == 0xffff
}

// headerSum is the folded sum of a header without options, octets of each word swapped. Five 32-bit
// words cannot overflow 64 bits. 0 and 0xffff stay themselves when swapped.
func headerSum(p *[IPv4Len]byte) uint16 {
	le := binary.LittleEndian
	return Fold(uint64(le.Uint32(p[0:4])) + uint64(le.Uint32(p[4:8])) + uint64(le.Uint32(p[8:12])) +
		uint64(le.Uint32(p[12:16])) + uint64(le.Uint32(p[16:20])))
}

// parse takes the fields over; the lengths have been checked.
func (h *IPv4) parse(p *[IPv4Len]byte, hdrLen, totalLen int) {
	frag := binary.BigEndian.Uint16(p[6:8])
	h.TOS = p[1]
	h.ID = binary.BigEndian.Uint16(p[4:6])
	h.DF = frag&ipv4DF != 0
	h.MF = frag&ipv4MF != 0
	h.FragOff = int(frag&ipv4OffMask) * 8
	h.TTL = p[8]
	h.Proto = p[9]
	h.Src = addrFromV4(binary.BigEndian.Uint32(p[12:16]))
	h.Dst = addrFromV4(binary.BigEndian.Uint32(p[16:20]))
	h.HdrLen = hdrLen
	h.TotalLen = totalLen
}

// Put writes a 20-octet header (no options) with its checksum at the start of b; TotalLen, header
// included, must be set. HdrLen is not looked at. A length, offset or address that has no place in
// the header is the caller's error: panic.
func (h *IPv4) Put(b []byte) {
	if h.TotalLen < IPv4Len || h.TotalLen > 0xffff {
		panic("inet: IPv4.Put: TotalLen must be 20 to 65535")
	}
	if h.FragOff&7 != 0 || uint(h.FragOff) > ipv4OffMask*8 {
		panic("inet: IPv4.Put: FragOff must be a multiple of 8 up to 65528")
	}
	frag := uint16(h.FragOff / 8)
	if h.DF {
		frag |= ipv4DF
	}
	if h.MF {
		frag |= ipv4MF
	}
	ttl := h.TTL
	if ttl == 0 {
		ttl = DefaultTTL
	}
	p := (*[IPv4Len]byte)(b)
	be := binary.BigEndian
	be.PutUint32(p[0:4], 0x45<<24|uint32(h.TOS)<<16|uint32(h.TotalLen))
	be.PutUint32(p[4:8], uint32(h.ID)<<16|uint32(frag))
	be.PutUint32(p[8:12], uint32(ttl)<<24|uint32(h.Proto)<<16)
	*(*[4]byte)(p[12:16]) = h.Src.As4()
	*(*[4]byte)(p[16:20]) = h.Dst.As4()
	// The sum was made of swapped words, so it is stored swapped (RFC 1071, 2(B)).
	binary.LittleEndian.PutUint16(p[10:12], ^headerSum(p))
}
