package tap

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	ethertypeAt = 12
	tagLen      = 4
	tagsMax     = 2
	ipv4Len     = 20
	ipv6Len     = 40
	tcpLen      = 20
	udpLen      = 8

	tcpCsumOffset = 16
	udpCsumOffset = 6

	// headersMax: Ethernet, two tags, IPv4 and TCP with all their options; IPv6 without extension
	// headers is shorter.
	headersMax = 14 + tagsMax*tagLen + 60 + 60

	ipLenMax = 65535 // of an IPv4 datagram, and of an IPv6 one's payload without its header
)

// TCP's flags in its octet 13.
const (
	flagFIN = 0x01
	flagPSH = 0x08
	flagACK = 0x10
	flagCWR = 0x80
)

// headers says where the headers of a frame lie that is to be cut, or is one of several to be
// coalesced: Ethernet with up to two tags, IPv4 or IPv6, TCP or UDP.
type headers struct {
	l3, l4 int // offsets of the IP and the TCP or UDP header
	len    int // of all together: the payload's offset
	v6     bool
	udp    bool
}

// parseHeaders reads them; l4 is where the checksum is said to start, whose field in the transport
// header tells TCP from UDP. False: they are not such headers, or do not end within frame.
func parseHeaders(frame []byte, l4, csumOffset int) (h headers, ok bool) {
	at := ethertypeAt
	for at < ethertypeAt+tagsMax*tagLen && at+2 <= len(frame) && isTag(frame[at:]) {
		at += tagLen
	}
	h.l3, h.l4 = at+2, l4
	if h.l3 >= len(frame) {
		return h, false
	}
	switch binary.BigEndian.Uint16(frame[at:]) {
	case unix.ETH_P_IP:
		ihl := int(frame[h.l3]&0xf) * 4
		if frame[h.l3]>>4 != 4 || ihl < ipv4Len || h.l3+ihl != l4 {
			return h, false
		}
	case unix.ETH_P_IPV6:
		h.v6 = true
		if frame[h.l3]>>4 != 6 || h.l3+ipv6Len > l4 { // extension headers may stand between
			return h, false
		}
	default:
		return h, false
	}
	switch {
	case csumOffset == tcpCsumOffset && l4+tcpLen <= len(frame):
		n := int(frame[l4+12]>>4) * 4
		h.len = l4 + n
		ok = n >= tcpLen
	case csumOffset == udpCsumOffset:
		h.udp = true
		h.len = l4 + udpLen
		ok = true
	}
	return h, ok && h.len <= len(frame) && h.len <= headersMax
}

func isTag(b []byte) bool {
	t := binary.BigEndian.Uint16(b)
	return t == unix.ETH_P_8021Q || t == unix.ETH_P_8021AD
}

// The fields that differ between a large frame and its parts. All sums are in ones-complement
// arithmetic (RFC 1071, RFC 1624), and are folded once, by fold.

func get(b []byte, at int) uint32       { return uint32(binary.BigEndian.Uint16(b[at:])) }
func put(b []byte, at int, v uint32)    { binary.BigEndian.PutUint16(b[at:], uint16(v)) }
func getSeq(b []byte, l4 int) uint32    { return binary.BigEndian.Uint32(b[l4+4:]) }
func putSeq(b []byte, l4 int, v uint32) { binary.BigEndian.PutUint32(b[l4+4:], v) }

func fold(s uint32) uint32 {
	s = s>>16 + s&0xffff
	return (s + s>>16) & 0xffff
}

// setLength gives the headers in b, those of frame of old octets, the lengths of one of n octets:
// of IPv4 with its checksum, of IPv6, of UDP, and in the pseudo-header's sum that stands in the
// transport checksum's field.
func (h *headers) setLength(b []byte, n int) {
	field := h.l4 + tcpCsumOffset
	old := int(get(b, h.l3+4)) + h.l3 + ipv6Len
	if !h.v6 {
		old = int(get(b, h.l3+2)) + h.l3
	}
	if h.udp {
		field = h.l4 + udpCsumOffset
		put(b, h.l4+4, uint32(n-h.l4))
	}
	// The transport's length stands in the pseudo-header; the difference may be negative: ~x is -x.
	put(b, field, fold(get(b, field)+uint32(n-h.l4)&0xffff+uint32(^(old-h.l4))&0xffff))
	if h.v6 {
		put(b, h.l3+4, uint32(n-h.l3-ipv6Len))
		return
	}
	h.setIPv4(b, h.l3+2, uint32(n-h.l3))
}

// setIPv4 puts v at the 16-bit field at of the IPv4 header and mends its checksum (RFC 1624
// equation 3).
func (h *headers) setIPv4(b []byte, at int, v uint32) {
	sum := h.l3 + 10
	put(b, sum, ^fold(^get(b, sum)&0xffff+^get(b, at)&0xffff+v&0xffff))
	put(b, at, v)
}
