package stack

import (
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
)

// fragment4 takes a fragment of an IPv4 datagram to us and, when it is the last that was missing, hands the datagram on.
func (p *Poller) fragment4(src inet.MAC, ip *inet.IPv4, payload, packet []byte) {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: uint32(ip.ID), Proto: ip.Proto},
		Next:     ip.Proto, Off: ip.FragOff, More: ip.MF, TOS: ip.TOS, Head: ip.HdrLen, Payload: payload, Packet: packet[:ip.TotalLen],
	}
	whole, proto, ok := p.reassemble(&f)
	if !ok {
		return
	}
	switch proto {
	case inet.ProtoTCP:
		p.tcpWhole(src, &ip.Src, &ip.Dst, whole)
	case inet.ProtoICMP:
		if len(whole) == 0 || whole[0] != inet.ICMPEcho {
			p.icmpMessage(whole)
			return
		}
		if !inet.EchoReply(whole, false) {
			p.n.Inet[inet.DropBadICMP]++
			return
		}
		p.echoReply(src, &ip.Dst, &ip.Src, inet.ProtoICMP, ip.TOS, whole)
	default:
		p.n.Inet[inet.DropProto]++
	}
}

// fragment6 is fragment4 for IPv6. Headers behind the Fragment header are walked when the packet is whole.
func (p *Poller) fragment6(b mem.Buf, src inet.MAC, ip *inet.IPv6, c *inet.Chain, payload, packet []byte) {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: c.Fragment.ID},
		Next:     c.Fragment.NextHeader, Off: c.Fragment.Off, More: c.Fragment.More, TOS: ip.TrafficClass, Head: c.Off - inet.Fragment6Len,
		Payload: payload[c.Off:], Packet: packet,
	}
	if ip.Dst.IsMulticast() || !p.possible(&ip.Src) {
		p.n.Inet[inet.DropNotOurs]++ // nothing we take by multicast may come in fragments
		return
	}
	if f.More && len(f.Payload)&7 != 0 { // RFC 8200 section 4.5: points at the Payload Length
		p.n.Inet[inet.DropFragment]++
		p.report6(&src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem, inet.ProblemField, 4, packet)
		return
	}
	if f.Off+len(f.Payload)+f.Head > 65535 { // and this at the Fragment Offset
		p.n.Inet[inet.DropFragment]++
		at := uint32(inet.IPv6Len + c.Off - inet.Fragment6Len + 2)
		p.report6(&src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem, inet.ProblemField, at, packet)
		return
	}
	whole, proto, ok := p.reassemble(&f)
	if !ok {
		return
	}
	chain, drop := inet.WalkIPv6(whole, proto, inet.IPv6Len, true)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return
	}
	whole = whole[chain.Off:]
	switch chain.Proto {
	case inet.ProtoTCP:
		p.tcpWhole(src, &ip.Src, &ip.Dst, whole)
	case inet.ProtoICMPv6:
		p.icmp6(b, src, ip, whole, nil)
	default:
		p.n.Inet[inet.DropProto]++
	}
}

// reassemble adds a fragment; ok: the datagram is whole.
func (p *Poller) reassemble(f *inet.Fragment) (whole []byte, proto uint8, ok bool) {
	p.n.Fragments++
	before := p.host.fragments.Evicted()
	whole, proto, drop := p.host.fragments.Add(p.now, f)
	p.n.Inet[inet.DropReassemblyFull] += p.host.fragments.Evicted() - before
	p.schedule()
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return nil, 0, false
	}
	if whole != nil {
		p.n.Reassembled++
	}
	return whole, proto, whole != nil
}

// tcpWhole gives a segment that came in fragments a Buf of its own.
func (p *Poller) tcpWhole(src inet.MAC, remote, local *inet.Addr, octets []byte) {
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return
	}
	h := p.pool.Headroom()
	if len(octets) > len(p.pool.Slot(b))-h { // longer than the MSS we announced, by far
		p.n.Inet[inet.DropTotalLen]++
		p.discard(b)
		return
	}
	tos := p.host.fragments.TOS()
	copy(p.pool.Slot(b)[h:], octets)
	p.putPacket(b, remote, local, inet.ProtoTCP, tos, p.cfg.TTL, len(octets)) // a frame: it may have to cross
	frame := p.pool.Data(b)
	copy(frame, p.mac[:])
	copy(frame[len(p.mac):], src[:])
	if p.tcp(b, src, remote, local, tos, frame[len(frame)-len(octets):], false) {
		p.discard(b)
	}
}

// echoReply sends payload, from a Buf or from the reassembly, to the station it answers, in fragments if the path wants
// them.
func (p *Poller) echoReply(mac inet.MAC, src, dst *inet.Addr, proto, tos uint8, payload []byte) {
	mtu := p.mtuTo(*dst)
	l3 := ipLen(dst)
	ident := p.host.ident.Next(*src, *dst, proto)
	room := min(mtu, p.pool.Stride()-p.pool.Headroom()) - l3
	if len(payload) <= room {
		room = len(payload)
	} else if l3 == inet.IPv6Len {
		room -= inet.Fragment6Len
	}
	for off := 0; off < len(payload); {
		n := min(room, len(payload)-off)
		more := off+n < len(payload)
		if more {
			n &^= 7
		}
		b := p.pool.Alloc()
		if b == mem.NoBuf {
			p.n.Own[DropNoBuf]++
			return
		}
		piece := payload[off : off+n]
		switch room := p.pool.Slot(b)[p.pool.Headroom():]; {
		case dst.Is4():
			copy(room, piece)
			p.putPiece4(b, src, dst, proto, tos, ident, n, off, more)
		case n < len(payload):
			p.putFragment6(b, src, dst, tos, &inet.Fragment6{NextHeader: proto, Off: off, More: more, ID: ident}, piece)
		default:
			copy(room, piece)
			p.putPacket(b, src, dst, proto, tos, p.host.hopLimit6, n)
		}
		if !p.reply(b, mac) {
			p.discard(b)
			return
		}
		off += n
	}
	p.n.EchoReplies++
}

// putFragment6 builds one piece of an IPv6 datagram.
func (p *Poller) putFragment6(b mem.Buf, src, dst *inet.Addr, tos uint8, f *inet.Fragment6, piece []byte) {
	room := p.pool.Slot(b)[p.pool.Headroom():]
	f.Put(room)
	copy(room[inet.Fragment6Len:], piece)
	p.putPacket(b, src, dst, inet.ProtoFragment6, tos, p.host.hopLimit6, inet.Fragment6Len+len(piece))
}

// putPiece4 makes the n octets at b's headroom an IPv4 packet without DF, whole or a fragment.
func (p *Poller) putPiece4(b mem.Buf, src, dst *inet.Addr, proto, tos uint8, ident uint32, n, off int, more bool) {
	p.putPacket(b, src, dst, proto, tos, p.cfg.TTL, n)
	ip := inet.IPv4{
		TOS: tos, ID: uint16(ident), MF: more, FragOff: off, TTL: p.cfg.TTL, Proto: proto, Src: *src, Dst: *dst,
		TotalLen: inet.IPv4Len + n,
	}
	ip.Put(p.pool.Slot(b)[p.pool.Headroom()-inet.IPv4Len:])
}
