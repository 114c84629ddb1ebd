package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// fragment4 takes a fragment of an IPv4 datagram to us and, when it is the last that was missing,
// hands the datagram on.
func (r *receiver) fragment4(now int64, src inet.MAC, ip *inet.IPv4, payload, packet []byte) found {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: uint32(ip.ID), Proto: ip.Proto},
		Next:     ip.Proto, Off: ip.FragOff, More: ip.MF, TOS: ip.TOS, Head: ip.HdrLen, Payload: payload,
		Packet: packet[:ip.TotalLen],
	}
	whole, proto, ok := r.reassemble(now, &f)
	if !ok {
		return foundNothing
	}
	switch proto {
	case inet.ProtoTCP:
		return r.tcpWhole(src, &ip.Src, &ip.Dst, whole)
	case inet.ProtoICMP:
		return r.icmp(mem.NoBuf, src, ip, whole)
	case inet.ProtoUDP:
		f, drop := r.udp(r.buf, &ip.Src, &ip.Dst, r.host.ReassembledTOS(), whole, false)
		r.drop(drop)
		return f
	}
	return r.drop(inet.DropProto)
}

// fragment6 is fragment4 for IPv6. Headers after the Fragment header are walked when the packet is
// whole.
func (r *receiver) fragment6(now int64, src inet.MAC, ip *inet.IPv6, c *inet.Chain, payload,
	packet []byte) found {
	f := inet.Fragment{
		Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: c.Fragment.ID},
		Next:     c.Fragment.NextHeader, Off: c.Fragment.Off, More: c.Fragment.More, TOS: ip.TrafficClass,
		Head:    c.Off - inet.Fragment6Len,
		Payload: payload[c.Off:], Packet: packet,
	}
	if ip.Dst.IsMulticast() || !r.host.Possible(&ip.Src) {
		return r.drop(inet.DropNotOurs) // nothing we take by multicast may come in fragments
	}
	if f.More && len(f.Payload)&7 != 0 { // RFC 8200 section 4.5: points at the Payload Length
		r.host.Report(now, &src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem,
			inet.ProblemField, 4, packet)
		return r.drop(inet.DropFragment)
	}
	if f.Off+len(f.Payload)+f.Head > 65535 { // and this at the Fragment Offset
		at := uint32(inet.IPv6Len + c.Off - inet.Fragment6Len + 2)
		r.host.Report(now, &src, &ip.Dst, &ip.Src, inet.ICMP6ParameterProblem,
			inet.ProblemField, at, packet)
		return r.drop(inet.DropFragment)
	}
	whole, proto, ok := r.reassemble(now, &f)
	if !ok {
		return foundNothing
	}
	chain, drop := inet.WalkIPv6(whole, proto, inet.IPv6Len, true)
	if drop != inet.DropNone {
		return r.drop(drop)
	}
	whole = whole[chain.Off:]
	switch chain.Proto {
	case inet.ProtoTCP:
		return r.tcpWhole(src, &ip.Src, &ip.Dst, whole)
	case inet.ProtoICMPv6:
		return r.icmp6(now, mem.NoBuf, src, ip, whole, false, false)
	case inet.ProtoUDP:
		f, drop := r.udp(r.buf, &ip.Src, &ip.Dst, r.host.ReassembledTOS(), whole, false)
		r.drop(drop)
		return f
	}
	return r.drop(inet.DropProto)
}

// reassemble adds a fragment; ok: the datagram is whole.
func (r *receiver) reassemble(now int64, f *inet.Fragment) (whole []byte, proto uint8, ok bool) {
	whole, proto, drop := r.host.Reassemble(now, f)
	r.drop(drop)
	return whole, proto, whole != nil
}

// tcpWhole gives a segment that came in fragments a Buf of its own, in place of the last
// fragment's.
func (r *receiver) tcpWhole(src inet.MAC, remote, local *inet.Addr, octets []byte) found {
	b := r.pool.Alloc()
	if b == mem.NoBuf {
		r.counters.Own[DropNoBuf]++
		return foundNothing
	}
	r.dead.add(r.buf)
	r.buf = b
	h := r.pool.Headroom()
	if len(octets) > len(r.pool.Slot(b))-h { // longer than the MSS we announced, by far
		return r.drop(inet.DropTotalLen)
	}
	tos := r.host.ReassembledTOS()
	copy(r.pool.Slot(b)[h:], octets)
	// a frame: it may have to cross
	r.tx.putPacket(b, remote, local, inet.ProtoTCP, tos, r.cfg.TTL, len(octets))
	frame := r.pool.Data(b)
	copy(frame, r.cfg.MAC[:])
	copy(frame[len(r.cfg.MAC):], src[:])
	return r.tcp(b, src, remote, local, tos, frame[len(frame)-len(octets):], false)
}
