package inet

import "encoding/binary"

// IPv6MTUMin is what every IPv6 link carries (RFC 8200, 5).
const IPv6MTUMin = 1280

// IPv6 is a parsed IPv6 header (RFC 8200, 3).
type IPv6 struct {
	TrafficClass uint8 // DSCP and, in the low two bits, ECN
	FlowLabel    uint32
	PayloadLen   int // extension headers included
	NextHeader   uint8
	HopLimit     uint8 // Put writes DefaultTTL for 0
	Src, Dst     Addr
}

// ParseIPv6 checks version, length and addresses. payload aliases b and ends at PayloadLen, so
// Ethernet padding is cut. The source :: passes, as duplicate address detection needs it: a caller
// that takes the packet further must look. An IPv4 address in mapped form (::ffff:0:0/96) must not
// appear on a wire and would here be taken for the IPv4 host: DropSource as source, DropNotOurs as
// destination. Hop limit is not looked at. Whether Dst is ours is the caller's to say.
func ParseIPv6(b []byte) (h IPv6, payload []byte, d Drop) {
	if len(b) < IPv6Len {
		return h, nil, DropShort
	}
	p := (*[IPv6Len]byte)(b)
	if p[0]>>4 != 6 {
		return h, nil, DropVersion
	}
	h.PayloadLen = int(binary.BigEndian.Uint16(p[4:6]))
	if h.PayloadLen > len(b)-IPv6Len {
		return h, nil, DropTotalLen
	}
	first := binary.BigEndian.Uint32(p[0:4])
	h.TrafficClass, h.FlowLabel = uint8(first>>20), first&0xfffff
	h.NextHeader, h.HopLimit = p[6], p[7]
	h.Src, h.Dst = Addr(p[8:24]), Addr(p[24:40])
	switch {
	case h.Src.IsMulticast(), h.Src.IsLoopback(), h.Src.Is4():
		return h, nil, DropSource
	case h.Dst.Is4():
		return h, nil, DropNotOurs
	}
	return h, b[IPv6Len : IPv6Len+h.PayloadLen], DropNone
}

// Put writes the IPv6Len octets of the header at the start of b. A length or address that has no
// place in it is the caller's error: panic.
func (h *IPv6) Put(b []byte) {
	if uint(h.PayloadLen) > 0xffff || h.Src.Is4() || h.Dst.Is4() {
		panic("inet: IPv6.Put: PayloadLen must be 0 to 65535 and the addresses IPv6")
	}
	hopLimit := h.HopLimit
	if hopLimit == 0 {
		hopLimit = DefaultTTL
	}
	p := (*[IPv6Len]byte)(b)
	be := binary.BigEndian
	be.PutUint32(p[0:4], 6<<28|uint32(h.TrafficClass)<<20|h.FlowLabel&0xfffff)
	be.PutUint32(p[4:8], uint32(h.PayloadLen)<<16|uint32(h.NextHeader)<<8|uint32(hopLimit))
	*(*Addr)(p[8:24]) = h.Src
	*(*Addr)(p[24:40]) = h.Dst
}

// Fragment6Len is the length of a Fragment header.
const Fragment6Len = 8

// Fragment6 is a Fragment header (RFC 8200, 4.5).
type Fragment6 struct {
	NextHeader uint8
	Off        int // octets
	More       bool
	ID         uint32
}

// Atomic is true of the one fragment that is a whole packet (RFC 8200, 4.5; RFC 6946): it is taken
// alone, whatever waits under its identification.
func (f *Fragment6) Atomic() bool { return f.Off == 0 && !f.More }

func parseFragment6(p *[Fragment6Len]byte) Fragment6 {
	w := binary.BigEndian.Uint16(p[2:4])
	return Fragment6{NextHeader: p[0], Off: int(w &^ 7), More: w&1 != 0,
		ID: binary.BigEndian.Uint32(p[4:8])}
}

// Put writes the Fragment6Len octets of the header at the start of b.
func (f *Fragment6) Put(b []byte) {
	if f.Off&7 != 0 || uint(f.Off) > 0xfff8 {
		panic("inet: Fragment6.Put: Off must be a multiple of 8 up to 65528")
	}
	w := uint16(f.Off)
	if f.More {
		w |= 1
	}
	p := (*[Fragment6Len]byte)(b)
	p[0], p[1] = f.NextHeader, 0
	binary.BigEndian.PutUint16(p[2:4], w)
	binary.BigEndian.PutUint32(p[4:8], f.ID)
}
