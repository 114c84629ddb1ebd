package engine

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A datagram on the wire (docs/adr/0048-datagrams.md): the payload of UDP from the port of the
// sender's slot to that of the receiver's, a header and then the message.
//
//	 0  magic "rnUD"    4  version 1    5  flags    6  0, 0
//	 8  number of the destination      12  number of the source
//	16  Q_Key                          20  immediate data, or 0
const (
	udHeaderLen = 24
	udRoom      = udHeaderLen + ring.DatagramMax // of the longest datagram
	udVersion   = 1

	udSolicited = 1 << 0
	udImmediate = 1 << 1
	udFlags     = udSolicited | udImmediate
)

var udMagic = [4]byte{'r', 'n', 'U', 'D'}

// udHeader is the header of a datagram.
type udHeader struct {
	flags       uint8
	destination uint32
	source      uint32
	qkey        uint32
	immediate   [4]byte // as imm_data has it
}

func (h *udHeader) put(b *[udHeaderLen]byte) {
	copy(b[:4], udMagic[:])
	b[4], b[5], b[6], b[7] = udVersion, h.flags, 0, 0
	binary.BigEndian.PutUint32(b[8:], h.destination)
	binary.BigEndian.PutUint32(b[12:], h.source)
	binary.BigEndian.PutUint32(b[16:], h.qkey)
	copy(b[20:], h.immediate[:])
}

// parse says whether b begins with a header.
func (h *udHeader) parse(b []byte) bool {
	if len(b) < udHeaderLen || [4]byte(b) != udMagic || b[4] != udVersion || b[5]&^udFlags != 0 ||
		b[6]|b[7] != 0 {
		return false
	}
	h.flags = b[5]
	h.destination = binary.BigEndian.Uint32(b[8:])
	h.source = binary.BigEndian.Uint32(b[12:])
	h.qkey = binary.BigEndian.Uint32(b[16:])
	h.immediate = [4]byte(b[20:])
	return (h.destination|h.source)>>24 == 0 && (h.flags&udImmediate != 0 || h.immediate == [4]byte{})
}

// gid is an address as address handles have it: IPv6's, or IPv4's as ::ffff:a.b.c.d.
type gid [16]byte

func (g *gid) is4() bool { return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff} }

// gidOf is the GID in two words of a ring.
func gidOf(a, b uint64) (g gid) {
	binary.NativeEndian.PutUint64(g[:8], a)
	binary.NativeEndian.PutUint64(g[8:], b)
	return g
}

// grhLen is what a receive buffer begins with.
const grhLen = 40

const (
	ipProtocolUDP = 17
	udpHeaderLen  = 8
	hopsOfGRH     = 64
)

// putGRH fills in what a buffer begins with, as RoCE v2 has it: the IP header of the datagram,
// IPv4's in the last 20 octets (IBTA, annex A17.4.5.1). Of what the kernel does not tell the usual
// is there: 64 hops, no flow label.
func putGRH(b *[grhLen]byte, source, destination *gid, class uint8, payload int) {
	*b = [grhLen]byte{}
	if !source.is4() || !destination.is4() {
		binary.BigEndian.PutUint32(b[:], 6<<28|uint32(class)<<20)
		binary.BigEndian.PutUint16(b[4:], uint16(udpHeaderLen+payload))
		b[6], b[7] = ipProtocolUDP, hopsOfGRH
		copy(b[8:], source[:])
		copy(b[24:], destination[:])
		return
	}
	h := b[grhLen-20:]
	h[0], h[1] = 0x45, class
	binary.BigEndian.PutUint16(h[2:], uint16(20+udpHeaderLen+payload))
	h[6] = 0x40 // not to be fragmented
	h[8], h[9] = hopsOfGRH, ipProtocolUDP
	copy(h[12:], source[12:])
	copy(h[16:], destination[12:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
}
