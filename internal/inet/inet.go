// Package inet has the layers below TCP: the codecs of Ethernet, ARP, IPv4, IPv6, ICMP and
// neighbour discovery, the Internet checksum, and the tables of an IP host: neighbours, routes,
// path MTUs, groups, datagrams being reassembled.
//
// Inbound, per frame of a burst:
//
//	ParseEthernet -> ParseIPv4 -> tcp.Parse            (ethernet.go, ipv4.go, checksum.go)
//	(ParseVLAN)   |  ParseIPv6 -> WalkIPv6                    (ipv6.go, ipv6_ext.go)
//	              |            -> Reassembly.Add, and again   (reassembly.go)
//	              |            -> EchoReply, ParseICMPError   (icmp.go, icmp6.go)
//	              |            -> ParseND -> Neighbours       (nd.go, neighbour_nd.go)
//	              |            -> ParseMLD -> Listener.Input  (mld.go, listener.go)
//	              -> ParseARP -> Neighbours.Input             (arp.go, neighbour_arp.go)
//
// Outbound, Routes gives the next hop (route.go) and PathMTU the size (pathmtu.go), the Put methods
// write headers in front of a segment, and Neighbours.Lookup gives the next hop's MAC.
// Listener.Output says which groups are wanted.
//
// A parser never reads beyond its input; what it returns aliases the input. It returns a Drop, by
// which the caller counts, not an error. Nothing here does I/O, reads a clock, locks or logs, and
// only the String methods allocate after a table was made. A table belongs to one Poller's
// goroutine.
//
// Limits: Ethernet II framing with at most one 802.1Q tag. IPv4 options and IPv6 extension
// headers are skipped, not applied, and only the Fragment header is sent. Redirects are ignored
// (RFC 1122, section 3.2.2.2, allows that).
package inet

// IP protocol numbers.
const (
	ProtoICMP   = 1
	ProtoIGMP   = 2
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
