package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// icmp6 handles an ICMPv6 message, which came in packet; nil: in fragments, one of them in b.
// alert: the packet has the Router Alert option for MLD.
// A message in fragments is not for other members of a Group: no host needs to send an error so
// (RFC 4443 section 2.4(c)).
func (p *Poller) icmp6(b mem.Buf, src inet.MAC, ip *inet.IPv6, message, packet []byte,
	alert bool) bool {
	if packet != nil && len(message) > 0 && message[0] != inet.ICMP6Echo {
		p.tellGroup(b)
	}
	switch {
	case len(message) < inet.ICMPLen:
		p.n.Inet[inet.DropBadICMP]++
	case message[0] >= inet.NDRouterSolicitation && message[0] <= inet.NDNeighbourAdvert+1:
		// RFC 6980: never fragmented; no chain of headers, either
		if len(packet) != inet.IPv6Len+len(message) {
			p.n.Inet[inet.DropBadND]++
			return true
		}
		p.discover(src, ip, message)
	case message[0] >= inet.MLDQuery && message[0] <= inet.MLDDone:
		p.listened(ip, message, alert)
	case ip.Dst.IsMulticast():
		p.n.Inet[inet.DropNotOurs]++
	case !p.possible(&ip.Src):
		p.n.Inet[inet.DropSource]++
	case message[0] == inet.ICMP6Echo:
		return p.echo6(b, src, ip, message)
	default:
		e, ok := inet.ParseICMP6Error(message, ip.Src, ip.Dst)
		if !ok { // unknown informational types end here in silence (RFC 4443 section 2.4(b))
			p.n.Inet[inet.DropBadICMP]++
			return true
		}
		p.icmpError(&e)
	}
	return true
}

// echo6 answers a ping.
func (p *Poller) echo6(b mem.Buf, src inet.MAC, ip *inet.IPv6, message []byte) bool {
	if !inet.EchoReply6(message, ip.Src, ip.Dst) {
		p.n.Inet[inet.DropBadICMP]++
		return true
	}
	p.echoReply(src, &ip.Dst, &ip.Src, inet.ProtoICMPv6, ip.TrafficClass, message)
	return true
}
