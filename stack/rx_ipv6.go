package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// ipv6 handles a packet that came from src; group: by link multicast.
func (r *receiver) ipv6(now int64, b mem.Buf, src inet.MAC, packet []byte, group bool) found {
	flags := r.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		return r.drop(inet.DropChecksum)
	}
	ip, payload, drop := inet.ParseIPv6(packet)
	multicast := ip.Dst.IsMulticast()
	switch {
	case drop != inet.DropNone:
	case multicast && ip.NextHeader == inet.ProtoUDP:
		return r.groupDatagram(b, &ip.Src, &ip.Dst, ip.TrafficClass, payload,
			flags&mem.RxChecksumGood != 0)
	case multicast && !r.host.IsMember(&ip.Dst), !multicast && (group || !r.host.IsLocal(&ip.Dst)):
		drop = inet.DropNotOurs
	case r.host.IsLocal(&ip.Src):
		drop = inet.DropSource // RFC 9293 MUST-63
		if ip.NextHeader == inet.ProtoICMPv6 && r.host.Impostor(now, src, &ip, payload) {
			r.member.tell(b)
		}
	case ip.NextHeader == inet.ProtoTCP || ip.NextHeader == inet.ProtoUDP:
		return r.deliver6(now, b, src, &ip, &inet.Chain{Proto: ip.NextHeader}, payload,
			packet[:inet.IPv6Len+len(payload)], flags&mem.RxChecksumGood != 0)
	default:
		return r.walk6(now, b, src, &ip, payload, packet, group)
	}
	return r.drop(drop)
}

// walk6 steps over the extension headers of ip.
func (r *receiver) walk6(now int64, b mem.Buf, src inet.MAC, ip *inet.IPv6, payload, packet []byte,
	group bool) found {
	packet = packet[:inet.IPv6Len+len(payload)]
	c, drop := inet.WalkIPv6(payload, ip.NextHeader, inet.IPv6Len, false)
	at := inet.IPv6Len
	if drop == inet.DropNone && c.HasFragment {
		fragment := c.Fragment
		if !fragment.Atomic() {
			return r.fragment6(now, src, ip, &c, payload, packet)
		}
		payload, at = payload[c.Off:], at+c.Off
		c, drop = inet.WalkIPv6(payload, fragment.NextHeader, at, true)
	}
	if drop != inet.DropNone {
		if c.Report && (c.Multicast || !group && !ip.Dst.IsMulticast()) {
			r.problem6(now, src, ip, &c, packet)
		}
		return r.drop(drop)
	}
	return r.deliver6(now, b, src, ip, &c, payload[c.Off:], packet, false)
}

// deliver6 hands the payload of a packet, which is of c.Proto, on. packet is what an error would
// quote.
func (r *receiver) deliver6(now int64, b mem.Buf, src inet.MAC, ip *inet.IPv6, c *inet.Chain,
	payload, packet []byte, good bool) found {
	if c.Proto == inet.ProtoICMPv6 {
		plain := len(packet) == inet.IPv6Len+len(payload)
		return r.icmp6(now, b, src, ip, payload, plain, c.Alert)
	}
	drop := inet.DropProto
	switch {
	case ip.Dst.IsMulticast():
		drop = inet.DropNotOurs // RFC 9293 MUST-57
	case !r.host.Possible(&ip.Src):
		drop = inet.DropSource
	case c.Proto == inet.ProtoTCP:
		return r.tcp(b, src, &ip.Src, &ip.Dst, ip.TrafficClass, payload, good)
	case c.Proto == inet.ProtoUDP:
		var f found
		if f, drop = r.udp(b, &ip.Src, &ip.Dst, ip.TrafficClass, payload, good); f != foundNothing {
			return f
		}
		if drop == inet.DropProto {
			r.host.Report(now, &src, &ip.Dst, &ip.Src, inet.ICMP6Unreachable,
				inet.ICMP6PortUnreachable, 0, packet)
		}
	case c.Proto != inet.ProtoNoNext:
		c.UnknownProto()
		r.problem6(now, src, ip, c, packet)
	}
	return r.drop(drop)
}

// problem6 sends the Parameter Problem that c asks for.
func (r *receiver) problem6(now int64, src inet.MAC, ip *inet.IPv6, c *inet.Chain, packet []byte) {
	from := ip.Dst
	if from.IsMulticast() {
		var ok bool
		if from, ok = r.host.Source(ip.Src, ip.Src); !ok {
			return
		}
	}
	r.host.Report(now, &src, &from, &ip.Src, inet.ICMP6ParameterProblem,
		c.Code, uint32(c.Pointer), packet)
}
