package filter

import "encoding/binary"

// What a frame has.
const (
	hasIP4 uint16 = 1 << iota
	hasIP6
	hasARP
	hasTCP
	hasUDP
	hasICMP
	hasICMP6
	hasVLAN
	hasPorts
)

// extensionsMax is how many extension headers of IPv6 are walked.
const extensionsMax = 8

const (
	etherIP4  = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	etherIP6  = 0x86dd

	protoHopByHop = 0
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoICMP6    = 58
	protoDestOpts = 60
)

// view is what tests look at of a frame. Its slices alias it.
type view struct {
	has              uint16
	tags             int
	tag              [2]uint16
	macs             []byte // destination, source
	addrs            []byte // source at 0, destination at dstAt
	dstAt            int
	addrsIP4         bool
	srcPort, dstPort uint16
}

func (v *view) src() []byte {
	if v.addrsIP4 {
		return v.addrs[:4]
	}
	return v.addrs[:16]
}

func (v *view) dst() []byte {
	if v.addrsIP4 {
		return v.addrs[v.dstAt : v.dstAt+4]
	}
	return v.addrs[v.dstAt : v.dstAt+16]
}

func (v *view) parse(b []byte) {
	if len(b) < 14 {
		return
	}
	v.macs = b[:12]
	kind := binary.BigEndian.Uint16(b[12:])
	b = b[14:]
	for (kind == etherVLAN || kind == etherQinQ) && v.tags < len(v.tag) && len(b) >= 4 {
		v.has |= hasVLAN
		v.tag[v.tags] = binary.BigEndian.Uint16(b) & 0x0fff
		v.tags++
		kind = binary.BigEndian.Uint16(b[2:])
		b = b[4:]
	}
	switch kind {
	case etherIP4:
		v.ip4(b)
	case etherIP6:
		v.ip6(b)
	case etherARP:
		v.has |= hasARP
		// Ethernet and IPv4, RFC 826.
		if len(b) >= 28 && binary.BigEndian.Uint16(b) == 1 &&
			binary.BigEndian.Uint16(b[2:]) == etherIP4 && b[4] == 6 && b[5] == 4 {
			v.addrs, v.dstAt, v.addrsIP4 = b[14:28], 10, true
		}
	}
}

func (v *view) ip4(b []byte) {
	v.has |= hasIP4
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	v.addrs, v.dstAt, v.addrsIP4 = b[12:20], 4, true
	first := binary.BigEndian.Uint16(b[6:])&0x1fff == 0
	if n := int(b[0]&15) * 4; n >= 20 && n <= len(b) {
		v.upper(b[9], b[n:], first)
		return
	}
	v.upper(b[9], nil, first)
}

func (v *view) ip6(b []byte) {
	v.has |= hasIP6
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	v.addrs, v.dstAt = b[8:40], 16
	next, first := b[6], true
	b = b[40:]
	for range extensionsMax {
		n := 0
		switch next {
		case protoHopByHop, protoRouting, protoDestOpts:
			if len(b) >= 8 {
				n = (int(b[1]) + 1) * 8
			}
		case protoAH:
			if len(b) >= 8 {
				n = (int(b[1]) + 2) * 4
			}
		case protoFragment:
			if len(b) >= 8 {
				n = 8
				first = binary.BigEndian.Uint16(b[2:])&^7 == 0
			}
		default:
			v.upper(next, b, first)
			return
		}
		if n == 0 || n > len(b) {
			return
		}
		next, b = b[0], b[n:]
		if !first {
			v.upper(next, nil, false)
			return
		}
	}
}

// upper is what is in an IP packet; the ports only in its first fragment.
func (v *view) upper(proto byte, b []byte, first bool) {
	switch proto {
	case protoTCP:
		v.has |= hasTCP
	case protoUDP:
		v.has |= hasUDP
	case protoICMP:
		v.has |= hasICMP
		return
	case protoICMP6:
		v.has |= hasICMP6
		return
	default:
		return
	}
	if first && len(b) >= 4 {
		v.has |= hasPorts
		v.srcPort, v.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
}
