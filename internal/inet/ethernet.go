package inet

import "encoding/binary"

// etherTypeMin is the least EtherType; below it the field is an IEEE 802.3 length (RFC 894; IEEE
// 802.3, 3.2.6).
const etherTypeMin = 0x0600

// Ethernet is a parsed Ethernet II header.
type Ethernet struct {
	Dst, Src MAC
	Type     uint16
}

// ParseEthernet splits a frame without FCS. payload aliases b and keeps the Ethernet padding, which
// only the layer above can tell from data. Whether Dst is ours is the caller's to say; Dst.IsGroup
// is the link broadcast sign that RFC 1122, 2.4 wants handed up. An 802.3 length in place of the
// type is DropEtherType, a group address as source DropSource.
func ParseEthernet(b []byte) (h Ethernet, payload []byte, d Drop) {
	if len(b) < EthernetLen {
		return h, nil, DropShort
	}
	p := (*[EthernetLen]byte)(b)
	h.Dst = MAC(p[0:6])
	h.Src = MAC(p[6:12])
	h.Type = binary.BigEndian.Uint16(p[12:14])
	if h.Type < etherTypeMin {
		return h, nil, DropEtherType
	}
	if h.Src.IsGroup() {
		return h, nil, DropSource
	}
	return h, b[EthernetLen:], DropNone
}

// Put writes the EthernetLen octets of the header at the start of b.
func (h *Ethernet) Put(b []byte) {
	p := (*[EthernetLen]byte)(b)
	*(*MAC)(p[0:6]) = h.Dst
	*(*MAC)(p[6:12]) = h.Src
	binary.BigEndian.PutUint16(p[12:14], h.Type)
}

// ParseVLAN reads the 802.1Q tag that follows a header of type EtherTypeVLAN: b is the frame's
// payload. vid 0 is a priority tag, which says nothing of a VLAN (IEEE 802.1Q, 9.6). The priority
// and the drop eligible bit are not kept.
func ParseVLAN(b []byte) (vid, typ uint16, payload []byte, d Drop) {
	if len(b) < VLANLen {
		return 0, 0, nil, DropShort
	}
	p := (*[VLANLen]byte)(b)
	typ = binary.BigEndian.Uint16(p[2:4])
	if typ < etherTypeMin {
		return 0, 0, nil, DropEtherType
	}
	return binary.BigEndian.Uint16(p[0:2]) & vidMask, typ, b[VLANLen:], DropNone
}

// vidMask is the VLAN identifier in a tag's control information.
const vidMask = 0x0fff

// PutVLAN writes the header with a tag of VLAN vid, EthernetLen+VLANLen octets, at the start of b.
func (h *Ethernet) PutVLAN(b []byte, vid uint16) {
	p := (*[EthernetLen + VLANLen]byte)(b)
	*(*MAC)(p[0:6]) = h.Dst
	*(*MAC)(p[6:12]) = h.Src
	binary.BigEndian.PutUint16(p[12:14], EtherTypeVLAN)
	binary.BigEndian.PutUint16(p[14:16], vid&vidMask)
	binary.BigEndian.PutUint16(p[16:18], h.Type)
}
