package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// frame is one that is being made in the Link's Room, of an IP packet to an address whose family is
// known: its payload first, then its headers.
type frame struct {
	h       *Host
	room    []byte
	payload []byte // of the packet, in room
}

// packet is what an IP header says.
type packet struct {
	src, dst        *inet.Addr
	proto, tos, ttl uint8
	df              bool
	ident           uint32
}

// LinkLen is how many octets the Ethernet headers have that we send.
func (h *Host) LinkLen() int {
	if h.cfg.VLAN != 0 {
		return inet.EthernetLen + inet.VLANLen
	}
	return inet.EthernetLen
}

// IPLen is the length of the IP header towards dst.
func IPLen(dst *inet.Addr) int {
	if dst.Is4() {
		return inet.IPv4Len
	}
	return inet.IPv6Len
}

// frame begins a packet towards dst; false: there is no room now.
func (h *Host) frame(dst *inet.Addr) (f frame, ok bool) {
	room := h.link.Room()
	if room == nil {
		return f, false
	}
	return frame{h: h, room: room, payload: room[h.LinkLen()+IPLen(dst):]}, true
}

// send makes the first n octets of the payload the packet p and sends it to mac. False: there was
// no room.
func (f *frame) send(n int, p *packet, mac inet.MAC) bool { return f.h.link.Send(f.put(n, p, mac)) }

// sendND is send for a message of neighbour discovery.
func (f *frame) sendND(n int, src, dst *inet.Addr, mac inet.MAC) bool {
	return f.send(n, &packet{src: src, dst: dst, proto: inet.ProtoICMPv6, ttl: ndHopLimit}, mac)
}

// put writes the headers of n octets of payload, and returns the frame's length.
func (f *frame) put(n int, p *packet, mac inet.MAC) int { return f.putPiece4(n, 0, false, p, mac) }

// putPiece4 is put of a piece that stands at off in an IPv4 datagram; of IPv6, off is 0.
func (f *frame) putPiece4(n, off int, more bool, p *packet, mac inet.MAC) int {
	l2 := f.h.LinkLen()
	if !p.dst.Is4() {
		f.h.putEthernet(f.room, mac, inet.EtherTypeIPv6)
		ip := inet.IPv6{
			TrafficClass: p.tos, PayloadLen: n, NextHeader: p.proto, HopLimit: p.ttl,
			Src: *p.src, Dst: *p.dst,
		}
		ip.Put(f.room[l2:])
		return l2 + inet.IPv6Len + n
	}
	f.h.putEthernet(f.room, mac, inet.EtherTypeIPv4)
	ip := inet.IPv4{
		TOS: p.tos, ID: uint16(p.ident), DF: p.df, MF: more, FragOff: off, TTL: p.ttl,
		Proto: p.proto, Src: *p.src, Dst: *p.dst, TotalLen: inet.IPv4Len + n,
	}
	ip.Put(f.room[l2:])
	return l2 + inet.IPv4Len + n
}

// sendPiece sends n octets of whole, which begin at off, as p or as a fragment of it.
func (f *frame) sendPiece(p *packet, whole []byte, off, n int, mac inet.MAC) bool {
	piece := whole[off : off+n]
	more := off+n < len(whole)
	if p.dst.Is4() || n == len(whole) {
		copy(f.payload, piece)
		return f.h.link.Send(f.putPiece4(n, off, more, p, mac))
	}
	header := inet.Fragment6{NextHeader: p.proto, Off: off, More: more, ID: p.ident}
	header.Put(f.payload)
	copy(f.payload[inet.Fragment6Len:], piece)
	fragment := *p
	fragment.proto = inet.ProtoFragment6
	return f.send(inet.Fragment6Len+n, &fragment, mac)
}

// sendARP sends a packet to mac. False: there was no room.
func (h *Host) sendARP(a *inet.ARP, mac inet.MAC) bool {
	room := h.link.Room()
	if room == nil {
		return false
	}
	h.putEthernet(room, mac, inet.EtherTypeARP)
	l2 := h.LinkLen()
	a.Put(room[l2:])
	return h.link.Send(l2 + inet.ARPLen)
}

func (h *Host) putEthernet(room []byte, dst inet.MAC, typ uint16) {
	eth := inet.Ethernet{Dst: dst, Src: h.cfg.MAC, Type: typ}
	if h.cfg.VLAN != 0 {
		eth.PutVLAN(room, h.cfg.VLAN)
		return
	}
	eth.Put(room)
}
