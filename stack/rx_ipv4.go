package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// ipv4 handles a datagram that came from src.
func (r *receiver) ipv4(now int64, b mem.Buf, src inet.MAC, datagram []byte) found {
	flags := r.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		return r.drop(inet.DropChecksum)
	}
	good := flags&mem.RxChecksumGood != 0
	var f found
	ip, payload, drop := inet.ParseIPv4(datagram, good)
	fragment := drop == inet.DropFragment
	switch {
	case drop != inet.DropNone && !fragment:
	case !r.host.IsLocal(&ip.Dst):
		drop = inet.DropNotOurs
	case r.host.IsLocal(&ip.Src) || !r.host.Possible(&ip.Src):
		drop = inet.DropSource // RFC 9293 MUST-63
	case fragment:
		return r.fragment4(now, src, &ip, payload, datagram)
	case ip.Proto == inet.ProtoTCP:
		return r.tcp(b, src, &ip.Src, &ip.Dst, ip.TOS, payload, good)
	case ip.Proto == inet.ProtoICMP:
		return r.icmp(b, src, &ip, payload)
	case ip.Proto == inet.ProtoUDP:
		if f, drop = r.udp(b, &ip.Src, &ip.Dst, ip.TOS, payload, good); f != foundNothing {
			return f
		}
		if drop == inet.DropProto { // no port listens
			r.unreachable(now, &src, &ip, inet.ICMPPortUnreachable, datagram)
		}
	default:
		drop = inet.DropProto
		r.unreachable(now, &src, &ip, inet.ICMPProtoUnreachable, datagram)
	}
	return r.drop(drop)
}

// unreachable reports that a datagram is for nobody here.
func (r *receiver) unreachable(now int64, src *inet.MAC, ip *inet.IPv4, code uint8,
	datagram []byte) {
	r.host.Report(now, src, &ip.Dst, &ip.Src, inet.ICMPUnreachable, code, 0, datagram[:ip.TotalLen])
}
