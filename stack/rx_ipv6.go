package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// ipv6 handles a packet that came from src; group: by link multicast. It returns whether b is done
// with.
func (p *Poller) ipv6(b mem.Buf, src inet.MAC, packet []byte, group bool) bool {
	flags := p.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		p.n.Inet[inet.DropChecksum]++
		return true
	}
	ip, payload, drop := inet.ParseIPv6(packet)
	multicast := ip.Dst.IsMulticast()
	switch {
	case drop != inet.DropNone:
	case multicast && !p.host.IsMember(&ip.Dst), !multicast && (group || !p.host.IsLocal(&ip.Dst)):
		drop = inet.DropNotOurs
	case p.host.IsLocal(&ip.Src):
		drop = inet.DropSource // RFC 9293 MUST-63
		if ip.NextHeader == inet.ProtoICMPv6 && p.host.Impostor(p.now, src, &ip, payload) {
			p.tellGroup(b)
		}
	case ip.NextHeader == inet.ProtoTCP:
		return p.deliver6(b, src, &ip, &inet.Chain{Proto: inet.ProtoTCP}, payload, packet,
			flags&mem.RxChecksumGood != 0)
	default:
		return p.walk6(b, src, &ip, payload, packet, group)
	}
	p.n.Inet[drop]++
	return true
}

// walk6 steps over the extension headers of ip.
func (p *Poller) walk6(b mem.Buf, src inet.MAC, ip *inet.IPv6, payload, packet []byte,
	group bool) bool {
	packet = packet[:inet.IPv6Len+len(payload)]
	c, drop := inet.WalkIPv6(payload, ip.NextHeader, inet.IPv6Len, false)
	at := inet.IPv6Len
	if drop == inet.DropNone && c.HasFragment {
		fragment := c.Fragment
		if !fragment.Atomic() {
			p.fragment6(src, ip, &c, payload, packet)
			return true
		}
		payload, at = payload[c.Off:], at+c.Off
		c, drop = inet.WalkIPv6(payload, fragment.NextHeader, at, true)
	}
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		if c.Report && (c.Multicast || !group && !ip.Dst.IsMulticast()) {
			p.problem6(src, ip, &c, packet)
		}
		return true
	}
	return p.deliver6(b, src, ip, &c, payload[c.Off:], packet, false)
}

// deliver6 hands the payload of a packet, which is of c.Proto, on. packet is what an error would
// quote.
func (p *Poller) deliver6(b mem.Buf, src inet.MAC, ip *inet.IPv6, c *inet.Chain, payload,
	packet []byte, good bool) bool {
	if c.Proto == inet.ProtoICMPv6 {
		plain := len(packet) == inet.IPv6Len+len(payload)
		p.icmp6(b, src, ip, payload, plain, c.Alert)
		return true
	}
	drop := inet.DropProto
	switch {
	case ip.Dst.IsMulticast():
		drop = inet.DropNotOurs // RFC 9293 MUST-57
	case !p.host.Possible(&ip.Src):
		drop = inet.DropSource
	case c.Proto == inet.ProtoTCP:
		return p.tcp(b, src, &ip.Src, &ip.Dst, ip.TrafficClass, payload, good)
	case c.Proto == inet.ProtoUDP:
		p.host.Report(p.now, &src, &ip.Dst, &ip.Src, inet.ICMP6Unreachable,
			inet.ICMP6PortUnreachable, 0, packet)
	case c.Proto != inet.ProtoNoNext:
		c.UnknownProto()
		p.problem6(src, ip, c, packet)
	}
	p.n.Inet[drop]++
	return true
}

// problem6 sends the Parameter Problem that c asks for.
func (p *Poller) problem6(src inet.MAC, ip *inet.IPv6, c *inet.Chain, packet []byte) {
	from := ip.Dst
	if from.IsMulticast() {
		var ok bool
		if from, ok = p.host.Source(ip.Src, ip.Src); !ok {
			return
		}
	}
	p.host.Report(p.now, &src, &from, &ip.Src, inet.ICMP6ParameterProblem,
		c.Code, uint32(c.Pointer), packet)
}
