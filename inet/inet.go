// Package inet holds what stands below TCP: the codecs of Ethernet, ARP, IPv4 and ICMP, the Internet checksum, and
// the table of neighbours.
//
// In a packet's way it is the first to look. Inbound, per frame of a burst:
//
//	ParseEthernet -> ParseIPv4 -> tcp.Parse            (ethernet.go, ipv4.go, checksum.go)
//	              |            -> EchoReply, ParseICMPError   (icmp.go)
//	              -> ParseARP -> Neighbours.Input             (arp.go, neighbour_arp.go)
//
// Outbound, the header Puts fill the room in front of a segment and Neighbours.Lookup names the next hop's MAC.
//
// A parser takes the octets there are and never one more; what it returns aliases them. It answers with a Drop, not
// an error: the caller counts by it. Nothing here does I/O, reads a clock, locks, logs or, after a table was made,
// allocates; only the String methods do. A table belongs to one Poller and is for its goroutine alone.
//
// Limits: Ethernet II framing without tags, ARP for IPv4. IPv4 options are stepped over, not obeyed, and none are
// sent. A fragment is recognised and given back as DropFragment with its header parsed. An Addr has room for IPv6.
package inet

// IP protocol numbers.
const (
	ProtoICMP = 1
	ProtoTCP  = 6
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
	ICMPLen     = 8
	ARPLen      = 28

	// FrameMin is the shortest frame without its FCS. Whoever sends pads up to it (RFC 894; IEEE 802.3, 4.4.2).
	FrameMin = 60
)
