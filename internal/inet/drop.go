package inet

// Drop says why a packet was not accepted. Every package of the receive path has such a list; the
// Poller counts by it and /metrics names it.
type Drop uint8

const (
	DropNone Drop = iota
	DropShort
	DropEtherType
	DropNotOurs
	DropVersion
	DropHeaderLen
	DropTotalLen
	DropChecksum
	// DropChecksumLeft: a datagram of UDP with the pseudo header's sum in its checksum's place. The
	// sender's kernel has left the rest to a device that does not complete it, as a veth.
	DropChecksumLeft
	DropFragment
	DropProto
	DropBadARP
	DropBadICMP
	DropSource // source address impossible (multicast, broadcast, loopback, our own)
	DropVLAN   // a tag of another VLAN, or none where ours is wanted
	DropExtension
	DropBadND             // RFC 4861, 6.1 and 7.1
	DropOverlap           // fragments that overlap, and the rest of their datagram
	DropReassemblyFull    // a datagram gave way to a newer one, or its fragment found no room
	DropReassemblyTimeout // a datagram that did not become whole in time
	DropBadMLD            // RFC 3810, 5.1.14 and 6.2
	DropBadIGMP           // RFC 3376, 9, and its like
	DropMax
)

// dropNames are metric labels: lower case, words joined by underscores, stable.
var dropNames = [DropMax]string{
	DropNone:         "none",
	DropShort:        "short",
	DropEtherType:    "ether_type",
	DropNotOurs:      "not_ours",
	DropVersion:      "version",
	DropHeaderLen:    "header_len",
	DropTotalLen:     "total_len",
	DropChecksum:     "checksum",
	DropChecksumLeft: "checksum_left",
	DropFragment:     "fragment",
	DropProto:        "proto",
	DropBadARP:       "bad_arp",
	DropBadICMP:      "bad_icmp",
	DropSource:       "source",
	DropVLAN:         "vlan",
	DropExtension:    "extension",
	DropBadND:        "bad_nd",
	DropOverlap:      "overlap",

	DropReassemblyFull:    "reassembly_full",
	DropReassemblyTimeout: "reassembly_timeout",
	DropBadMLD:            "bad_mld",
	DropBadIGMP:           "bad_igmp",
}

// String is the reason's name in metrics.
func (d Drop) String() string {
	if d >= DropMax {
		return "unknown"
	}
	return dropNames[d]
}
