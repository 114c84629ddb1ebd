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
	default:
		drop = inet.DropProto
		code := uint8(inet.ICMPProtoUnreachable)
		if ip.Proto == inet.ProtoUDP { // no port listens
			code = inet.ICMPPortUnreachable
		}
		r.host.Report(now, &src, &ip.Dst, &ip.Src, inet.ICMPUnreachable, code, 0,
			datagram[:ip.TotalLen])
	}
	return r.drop(drop)
}
