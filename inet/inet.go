// Package inet holds what stands below TCP: the codecs of Ethernet, ARP, IPv4, IPv6, ICMP and
// neighbour discovery, the Internet checksum, and the tables of an IP host: neighbours, routes,
// path MTUs, datagrams being reassembled.
//
// In a packet's way it is the first to look. Inbound, per frame of a burst:
//
//	ParseEthernet -> ParseIPv4 -> tcp.Parse            (ethernet.go, ipv4.go, checksum.go)
//	(ParseVLAN)   |  ParseIPv6 -> WalkIPv6                    (ipv6.go, ipv6_ext.go)
//	              |            -> Reassembly.Add, and again   (reassembly.go)
//	              |            -> EchoReply, ParseICMPError   (icmp.go, icmp6.go)
//	              |            -> ParseND -> Neighbours       (nd.go, neighbour_nd.go)
//	              -> ParseARP -> Neighbours.Input             (arp.go, neighbour_arp.go)
//
// Outbound, Routes names the next hop (route.go), PathMTU the size (pathmtu.go), the header Puts
// fill the room in front of a segment and Neighbours.Lookup names the next hop's MAC.
//
// A parser takes the octets there are and never one more; what it returns aliases them. It answers
// with a Drop, not an error: the caller counts by it. Nothing here does I/O, reads a clock, locks,
// logs or, after a table was made, allocates; only the String methods do. A table belongs to one
// Poller and is for its goroutine alone.
//
// Limits: Ethernet II framing with at most one 802.1Q tag. IPv4 options and IPv6 extension headers
// are stepped over, not applied, and none but the Fragment header are sent. Redirects are never
// followed (RFC 1122, 3.2.2.2, lets a host ignore them).
package inet

// IP protocol numbers.
const (
	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
)

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd
)

// Header lengths and frame sizes, in octets.
const (
	EthernetLen = 14
	IPv4Len     = 20 // without options
	IPv4LenMax  = 60
	IPv6Len     = 40
	VLANLen     = 4 // what a tag adds
	ICMPLen     = 8
	ARPLen      = 28

	// FrameMin is the shortest frame without its FCS. The sender pads up to it (RFC 894; IEEE
	// 802.3, 4.4.2).
	FrameMin = 60
)
