package inet

import "encoding/binary"

// ARP operations (RFC 826). Others are let through by ParseARP, as the sender's mapping counts
// whatever the operation.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// arpPrefix is hrd 1 (Ethernet), pro 0x0800, hln 6, pln 4 (RFC 826, Packet Generation).
const arpPrefix = 0x0001_0800_06_04

// ARP is a parsed Ethernet/IPv4 ARP packet.
type ARP struct {
	Op                   uint16 // 1 request, 2 reply
	SenderMAC, TargetMAC MAC
	SenderIP, TargetIP   Addr
}

// ParseARP reads the ARP part of a frame; what follows it is Ethernet padding. DropBadARP: not
// Ethernet and IPv4. DropSource: a sender that cannot be one station, the only harm being a table
// entry that leads to everybody (RFC 1812, 3.3.2). Sender address 0.0.0.0 passes: it is a probe and
// wants its answer (RFC 5227, 2.1.1).
func ParseARP(b []byte) (ARP, Drop) {
	if len(b) < ARPLen {
		return ARP{}, DropShort
	}
	p := (*[ARPLen]byte)(b)
	if binary.BigEndian.Uint64(p[0:8])>>16 != arpPrefix {
		return ARP{}, DropBadARP
	}
	a := ARP{
		Op:        binary.BigEndian.Uint16(p[6:8]),
		SenderMAC: MAC(p[8:14]),
		SenderIP:  addrFromV4(binary.BigEndian.Uint32(p[14:18])),
		TargetMAC: MAC(p[18:24]),
		TargetIP:  addrFromV4(binary.BigEndian.Uint32(p[24:28])),
	}
	if a.SenderMAC.IsGroup() || a.SenderMAC.IsZero() {
		return a, DropSource
	}
	if !a.SenderIP.IsStation() && !a.SenderIP.IsUnspecified() {
		return a, DropSource
	}
	return a, DropNone
}

// Put writes the ARPLen octets of the packet at the start of b. Addresses that are not IPv4 are the
// caller's error: panic.
func (a *ARP) Put(b []byte) {
	p := (*[ARPLen]byte)(b)
	binary.BigEndian.PutUint64(p[0:8], arpPrefix<<16|uint64(a.Op))
	*(*MAC)(p[8:14]) = a.SenderMAC
	*(*[4]byte)(p[14:18]) = a.SenderIP.As4()
	*(*MAC)(p[18:24]) = a.TargetMAC
	*(*[4]byte)(p[24:28]) = a.TargetIP.As4()
}

// RequestARP asks for the MAC of target. The frame goes to Broadcast, or to the MAC that is to be
// confirmed; the target MAC inside, which is what is asked for, is left zero.
func RequestARP(mac MAC, ip, target Addr) ARP {
	return ARP{Op: ARPRequest, SenderMAC: mac, SenderIP: ip, TargetIP: target}
}

// ProbeARP asks, from no address, whether another station has ip (RFC 5227, 2.1.1): no station
// learns anything from it. The frame goes to Broadcast.
func ProbeARP(mac MAC, ip Addr) ARP { return RequestARP(mac, AddrFrom4([4]byte{}), ip) }

// AnnounceARP tells all stations that ip is at mac (RFC 5227, 2.3): those that know ip take note.
// The frame goes to Broadcast.
func AnnounceARP(mac MAC, ip Addr) ARP { return RequestARP(mac, ip, ip) }

// Reply is the answer of mac to the request a: the fields swapped (RFC 826, Packet Reception). The
// frame goes to its TargetMAC.
func (a *ARP) Reply(mac MAC) ARP {
	return ARP{Op: ARPReply, SenderMAC: mac, SenderIP: a.TargetIP, TargetMAC: a.SenderMAC,
		TargetIP: a.SenderIP}
}
