package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// icmp handles an ICMP message and returns whether b is done with. l3 is where the IP header begins
// in the frame.
func (p *Poller) icmp(b mem.Buf, src inet.MAC, ip *inet.IPv4, message []byte, l3 int) bool {
	// The device's verdict covers IP and TCP checksums, not ICMP's: it is always checked here.
	if len(message) > 0 && message[0] == inet.ICMPEcho {
		return p.echo(b, src, ip, message, l3)
	}
	p.tellGroup(b)
	p.icmpMessage(message)
	return true
}

// icmpMessage handles what is no echo request. A Source Quench is as good as unknown (RFC 9293
// MUST-55), and so is a Redirect, which a host may ignore (RFC 1122 section 3.2.2.2).
func (p *Poller) icmpMessage(message []byte) {
	e, ok := inet.ParseICMPError(message)
	if !ok {
		p.n.Inet[inet.DropBadICMP]++
		return
	}
	p.icmpError(&e)
}

// echo answers a ping in its own Buf. IP options are not returned: the header becomes 20 octets,
// put right in front of the message.
func (p *Poller) echo(b mem.Buf, src inet.MAC, ip *inet.IPv4, message []byte, l3 int) bool {
	if !inet.EchoReply(message, false) {
		p.n.Inet[inet.DropBadICMP]++
		return true
	}
	d := p.pool.Desc(b)
	off := int(d.Off) + l3 + ip.HdrLen - inet.IPv4Len - p.host.l2
	if inet.IPv4Len+len(message) > p.mtuTo(ip.Src) || off < 0 {
		p.echoReply(src, &ip.Dst, &ip.Src, inet.ProtoICMP, ip.TOS, message)
		return true
	}
	d.Off, d.Len, d.Flags = uint32(off), uint32(p.host.l2+inet.IPv4Len+len(message)), 0
	frame := p.pool.Data(b)
	p.putEthernet(frame, inet.EtherTypeIPv4)
	out := inet.IPv4{
		TOS: ip.TOS, DF: ip.DF, TTL: p.cfg.TTL, Proto: inet.ProtoICMP, Src: ip.Dst, Dst: ip.Src,
		HdrLen: inet.IPv4Len, TotalLen: inet.IPv4Len + len(message),
	}
	if !ip.DF { // RFC 791 section 2.3
		out.ID = uint16(p.host.ident.Next(ip.Dst, ip.Src, inet.ProtoICMP))
	}
	out.Put(frame[p.host.l2:])
	if !p.reply(b, src) {
		return true
	}
	p.n.EchoReplies++
	return false
}

// echoReply sends payload, from a Buf or from the reassembly, to the station it answers, in
// fragments if the path wants them.
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
			p.putFragment6(b, src, dst, tos, &inet.Fragment6{NextHeader: proto, Off: off, More: more,
				ID: ident}, piece)
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

// icmpError acts on an error about a segment of ours that is still unacknowledged (RFC 5927 section
// 4.1: the quoted sequence number proves the router saw it). Hard errors end only a connection that
// is being opened (section 5.2), a path MTU lowers the EMSS of any, the rest is advice.
func (p *Poller) icmpError(e *inet.ICMPError) {
	if e.Proto != inet.ProtoTCP || !p.isLocal(&e.Src) || len(e.Quoted) < 8 {
		p.n.ICMPIgnored++
		return
	}
	id := tcp.ID{
		Local: e.Src, Remote: e.Dst,
		LocalPort: binary.BigEndian.Uint16(e.Quoted), RemotePort: binary.BigEndian.Uint16(e.Quoted[2:]),
	}
	i := p.table.find(&id)
	if i == noConn {
		p.n.ICMPIgnored++
		return
	}
	c := &p.slab.conns[i]
	opening := c.tcp.State() == tcp.SynSent
	seq := tcp.Seq(binary.BigEndian.Uint32(e.Quoted[4:]))
	switch {
	case opening && seq != c.tcp.ISS(), !opening && !c.inFlight(seq):
		p.n.ICMPIgnored++
	case tooBig(e):
		p.packetTooBig(c, e, seq)
	case opening && hard(e):
		p.n.ICMPHard++
		p.abort(c, whyRefused)
	default:
		p.n.ICMPSoft++
		if unreachable(e) {
			p.advise(c, whatIs(e))
		}
	}
}

// hard says whether e is a hard error (RFC 9293 section 3.9.2.2; RFC 5461 section 2 for IPv6).
func hard(e *inet.ICMPError) bool {
	if e.Src.Is4() {
		return e.Type == inet.ICMPUnreachable &&
			(e.Code == inet.ICMPProtoUnreachable || e.Code == inet.ICMPPortUnreachable)
	}
	return e.Type == inet.ICMP6Unreachable && e.Code == inet.ICMP6PortUnreachable ||
		e.Type == inet.ICMP6ParameterProblem && e.Code == inet.ProblemNextHeader
}

// tooBig says whether e is path MTU discovery's.
func tooBig(e *inet.ICMPError) bool {
	if e.Src.Is4() {
		return e.Type == inet.ICMPUnreachable && e.Code == inet.ICMPFragNeeded
	}
	return e.Type == inet.ICMP6TooBig
}

func unreachable(e *inet.ICMPError) bool {
	return e.Src.Is4() && e.Type == inet.ICMPUnreachable || !e.Src.Is4() &&
		e.Type == inet.ICMP6Unreachable
}

// whatIs is what an unreachable error says: no host is there, or there is no way to the network, or
// none to the host in it.
func whatIs(e *inet.ICMPError) reason {
	v4 := e.Src.Is4()
	switch {
	case hard(e):
		return whyRefused
	case v4 && (e.Code == inet.ICMPNetUnreachable || e.Code == inet.ICMPNetUnknown ||
		e.Code == inet.ICMPNetTOS),
		!v4 && e.Code == inet.ICMP6NoRoute:
		return whyNetUnreachable
	}
	return whyNoRoute
}

// inFlight says whether seq is of an octet pulled and not acknowledged.
func (c *Conn) inFlight(seq tcp.Seq) bool {
	acked := c.tcp.AckedOffset()
	return uint64(uint32(seq-(c.tcp.ISS()+1+tcp.Seq(acked)))) < c.tcp.PushedOffset()-acked
}

// report4 sends an ICMP error about packet, which dst sent us, to the station mac it came from, or
// by route when that is nil. Within the rate (Config.ICMPPerSec), and never in the cases of RFC
// 1122 section 3.2.2: src and dst are what the receive path found to be ours and one host's.
func (p *Poller) report4(mac *inet.MAC, src, dst *inet.Addr, typ, code uint8, word uint32,
	packet []byte) {
	if !inet.MayReport(packet) {
		return
	}
	b := p.errorBuf()
	if b == mem.NoBuf {
		return
	}
	n := inet.PutICMPError(p.pool.Slot(b)[p.pool.Headroom():], typ, code, word, packet)
	p.putPiece4(b, src, dst, inet.ProtoICMP, 0, p.host.ident.Next(*src, *dst, inet.ProtoICMP),
		n, 0, false)
	p.sendError(b, mac, dst)
}

// report6 is report4 for ICMPv6: RFC 4443 section 2.4(e) and (f).
func (p *Poller) report6(mac *inet.MAC, src, dst *inet.Addr, typ, code uint8, word uint32,
	packet []byte) {
	if !p.possible(dst) || !inet.MayReport6(packet) {
		return
	}
	b := p.errorBuf()
	if b == mem.NoBuf {
		return
	}
	n := inet.PutICMP6Error(p.pool.Slot(b)[p.pool.Headroom():], typ, code, word, packet, *src, *dst)
	p.putPacket(b, src, dst, inet.ProtoICMPv6, 0, p.host.hopLimit6, n)
	p.sendError(b, mac, dst)
}

// reassemblyExceeded tells the sender of packet, a fragment at offset 0, that the rest did not
// come.
func (p *Poller) reassemblyExceeded(packet []byte) {
	if packet[0]>>4 == 4 {
		src, dst := inet.AddrFrom4([4]byte(packet[16:])), inet.AddrFrom4([4]byte(packet[12:]))
		p.report4(nil, &src, &dst, inet.ICMPTimeExceeded, inet.ICMPReassemblyExceeded, 0, packet)
		return
	}
	src, dst := inet.Addr(packet[24:40]), inet.Addr(packet[8:24])
	p.report6(nil, &src, &dst, inet.ICMP6TimeExceeded, inet.ICMPReassemblyExceeded, 0, packet)
}

// errorBuf is a Buf for an error of ours, if one may be sent now.
func (p *Poller) errorBuf() mem.Buf {
	if !p.host.errors.take(p.now) {
		p.n.Own[DropICMPLimited]++
		return mem.NoBuf
	}
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
	}
	return b
}

func (p *Poller) sendError(b mem.Buf, mac *inet.MAC, dst *inet.Addr) {
	if mac != nil {
		if !p.reply(b, *mac) {
			p.discard(b)
			return
		}
		p.n.ICMPSent++
		return
	}
	hop, ok := p.route(*dst)
	if !ok {
		p.n.Own[DropNoRoute]++
		p.discard(b)
		return
	}
	p.tx.meta[b] = bufMeta{conn: noConn, freeAfter: true, ahead: true}
	p.tx.hopKnown = false
	p.n.ICMPSent++
	p.send(b, hop)
}

// putFragment6 builds one piece of an IPv6 datagram.
func (p *Poller) putFragment6(b mem.Buf, src, dst *inet.Addr, tos uint8, f *inet.Fragment6,
	piece []byte) {
	room := p.pool.Slot(b)[p.pool.Headroom():]
	f.Put(room)
	copy(room[inet.Fragment6Len:], piece)
	p.putPacket(b, src, dst, inet.ProtoFragment6, tos, p.host.hopLimit6, inet.Fragment6Len+len(piece))
}

// putPiece4 makes the n octets at b's headroom an IPv4 packet without DF, whole or a fragment.
func (p *Poller) putPiece4(b mem.Buf, src, dst *inet.Addr, proto, tos uint8, ident uint32, n,
	off int, more bool) {
	p.putPacket(b, src, dst, proto, tos, p.cfg.TTL, n)
	ip := inet.IPv4{
		TOS: tos, ID: uint16(ident), MF: more, FragOff: off, TTL: p.cfg.TTL, Proto: proto,
		Src: *src, Dst: *dst,
		TotalLen: inet.IPv4Len + n,
	}
	ip.Put(p.pool.Slot(b)[p.pool.Headroom()-inet.IPv4Len:])
}
