package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// fragment4 takes a fragment of an IPv4 datagram to us and, when it is the last that was missing,
// hands the datagram on.
func (p *Poller) fragment4(src inet.MAC, ip *inet.IPv4, payload, packet []byte) {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: uint32(ip.ID), Proto: ip.Proto},
		Next:     ip.Proto, Off: ip.FragOff, More: ip.MF, TOS: ip.TOS, Head: ip.HdrLen, Payload: payload,
		Packet: packet[:ip.TotalLen],
	}
	whole, proto, ok := p.reassemble(&f)
	if !ok {
		return
	}
	switch proto {
	case inet.ProtoTCP:
		p.tcpWhole(src, &ip.Src, &ip.Dst, whole)
	case inet.ProtoICMP:
		p.icmp(mem.NoBuf, src, ip, whole)
	default:
		p.n.Inet[inet.DropProto]++
	}
}

// fragment6 is fragment4 for IPv6. Headers after the Fragment header are walked when the packet is
// whole.
func (p *Poller) fragment6(src inet.MAC, ip *inet.IPv6, c *inet.Chain, payload,
	packet []byte) {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: c.Fragment.ID},
		Next:     c.Fragment.NextHeader, Off: c.Fragment.Off, More: c.Fragment.More, TOS: ip.TrafficClass,
		Head:    c.Off - inet.Fragment6Len,
		Payload: payload[c.Off:], Packet: packet,
	}
	if ip.Dst.IsMulticast() || !p.host.Possible(&ip.Src) {
		p.n.Inet[inet.DropNotOurs]++ // nothing we take by multicast may come in fragments
		return
	}
	if f.More && len(f.Payload)&7 != 0 { // RFC 8200 section 4.5: points at the Payload Length
		p.n.Inet[inet.DropFragment]++
		p.host.Report(p.now, &src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem,
			inet.ProblemField, 4, packet)
		return
	}
	if f.Off+len(f.Payload)+f.Head > 65535 { // and this at the Fragment Offset
		p.n.Inet[inet.DropFragment]++
		at := uint32(inet.IPv6Len + c.Off - inet.Fragment6Len + 2)
		p.host.Report(p.now, &src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem,
			inet.ProblemField, at, packet)
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
		p.icmp6(mem.NoBuf, src, ip, whole, false, false)
	default:
		p.n.Inet[inet.DropProto]++
	}
}

// reassemble adds a fragment; ok: the datagram is whole.
func (p *Poller) reassemble(f *inet.Fragment) (whole []byte, proto uint8, ok bool) {
	whole, proto, drop := p.host.Reassemble(p.now, f)
	p.dropped(drop)
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
	tos := p.host.ReassembledTOS()
	copy(p.pool.Slot(b)[h:], octets)
	// a frame: it may have to cross
	p.putPacket(b, remote, local, inet.ProtoTCP, tos, p.cfg.TTL, len(octets))
	frame := p.pool.Data(b)
	copy(frame, p.mac[:])
	copy(frame[len(p.mac):], src[:])
	if p.tcp(b, src, remote, local, tos, frame[len(frame)-len(octets):], false) {
		p.discard(b)
	}
}
