package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// ipv4 handles a datagram that came from src, and returns whether b is done with.
func (p *Poller) ipv4(b mem.Buf, src inet.MAC, datagram []byte) bool {
	flags := p.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		p.n.Inet[inet.DropChecksum]++
		return true
	}
	good := flags&mem.RxChecksumGood != 0
	ip, payload, drop := inet.ParseIPv4(datagram, good)
	fragment := drop == inet.DropFragment
	switch {
	case drop != inet.DropNone && !fragment:
	case !p.host.IsLocal(&ip.Dst):
		drop = inet.DropNotOurs
	case p.host.IsLocal(&ip.Src) || !p.host.Possible(&ip.Src):
		drop = inet.DropSource // RFC 9293 MUST-63
	case fragment:
		p.fragment4(src, &ip, payload, datagram)
		return true
	case ip.Proto == inet.ProtoTCP:
		return p.tcp(b, src, &ip.Src, &ip.Dst, ip.TOS, payload, good)
	case ip.Proto == inet.ProtoICMP:
		p.icmp(b, src, &ip, payload)
		return true
	default:
		drop = inet.DropProto
		code := uint8(inet.ICMPProtoUnreachable)
		if ip.Proto == inet.ProtoUDP { // no port listens
			code = inet.ICMPPortUnreachable
		}
		p.host.Report(p.now, &src, &ip.Dst, &ip.Src, inet.ICMPUnreachable, code, 0,
			datagram[:ip.TotalLen])
	}
	p.n.Inet[drop]++
	return true
}
