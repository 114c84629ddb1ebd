package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// ICMP handles an ICMP message from the station at mac. err, if not nil, is an error about a packet
// of ours, good until the next call. A Source Quench is as good as unknown (RFC 9293 MUST-55), and
// so is a Redirect, which a host may ignore (RFC 1122 section 3.2.2.2).
func (h *Host) ICMP(
	mac inet.MAC, ip *inet.IPv4, message []byte,
) (err *inet.ICMPError, drop inet.Drop) {
	if IsEcho(message) {
		if !inet.EchoReply(message, false) {
			return nil, inet.DropBadICMP
		}
		h.answer(mac, &packet{
			src: &ip.Dst, dst: &ip.Src, proto: inet.ProtoICMP, tos: ip.TOS, df: ip.DF, ttl: h.cfg.TTL,
		}, message)
		return nil, inet.DropNone
	}
	var ok bool
	if h.err, ok = inet.ParseICMPError(message); !ok {
		return nil, inet.DropBadICMP
	}
	return &h.err, inet.DropNone
}

// IsEcho says whether an ICMP message is a ping, IsEcho6 whether one of ICMPv6 is.
func IsEcho(message []byte) bool  { return len(message) > 0 && message[0] == inet.ICMPEcho }
func IsEcho6(message []byte) bool { return len(message) > 0 && message[0] == inet.ICMP6Echo }

// ICMP6 is ICMP for ICMPv6. plain: the message came whole, in a packet without extension headers;
// alert: with the Router Alert option for MLD.
func (h *Host) ICMP6(
	now int64, mac inet.MAC, ip *inet.IPv6, message []byte, plain, alert bool,
) (err *inet.ICMPError, drop inet.Drop) {
	switch {
	case len(message) < inet.ICMPLen:
		return nil, inet.DropBadICMP
	case message[0] >= inet.NDRouterSolicitation && message[0] <= inet.NDNeighbourAdvert+1:
		if !plain { // RFC 6980: never fragmented; no chain of headers, either
			return nil, inet.DropBadND
		}
		return nil, h.discover(now, mac, ip, message)
	case message[0] >= inet.MLDQuery && message[0] <= inet.MLDDone:
		return nil, h.listened(now, ip, message, alert)
	case ip.Dst.IsMulticast():
		return nil, inet.DropNotOurs
	case !h.Possible(&ip.Src):
		return nil, inet.DropSource
	case IsEcho6(message):
		if !inet.EchoReply6(message, ip.Src, ip.Dst) {
			return nil, inet.DropBadICMP
		}
		h.answer(mac, &packet{
			src: &ip.Dst, dst: &ip.Src, proto: inet.ProtoICMPv6, tos: ip.TrafficClass, ttl: h.hopLimit6,
		}, message)
		return nil, inet.DropNone
	}
	var ok bool
	h.err, ok = inet.ParseICMP6Error(message, ip.Src, ip.Dst)
	if !ok { // unknown informational types end here in silence (RFC 4443 section 2.4(b))
		return nil, inet.DropBadICMP
	}
	return &h.err, inet.DropNone
}

// answer sends payload to the station that pinged, in fragments if the path wants them. IP options
// are not returned.
func (h *Host) answer(mac inet.MAC, p *packet, payload []byte) {
	l3 := IPLen(p.dst)
	for off, most := 0, 0; off < len(payload); off += most {
		f, ok := h.frame(p.dst)
		if !ok {
			return
		}
		if off == 0 {
			most = min(h.MTUTo(*p.dst)-l3, len(f.payload), len(payload))
			if most < len(payload) {
				p.df = false
				if !p.dst.Is4() {
					most -= inet.Fragment6Len
				}
				most &^= 7
			}
			if !p.df { // RFC 791 section 2.3
				p.ident = h.ident.Next(*p.src, *p.dst, p.proto)
			}
		}
		if !f.sendPiece(p, payload, off, min(most, len(payload)-off), mac) {
			return
		}
	}
	h.n.EchoReplies++
}

// Report sends an ICMP error of the packet's family about packet, which dst sent us, to the station
// mac it came from, or by route when that is nil. Within the rate (Config.ErrorsMax), and never in
// the cases of RFC 1122 section 3.2.2 and RFC 4443 section 2.4(e) and (f): src and dst are what the
// receive path found to be ours and one host's.
func (h *Host) Report(
	now int64, mac *inet.MAC, src, dst *inet.Addr, typ, code uint8, word uint32, quoted []byte,
) {
	p := packet{src: src, dst: dst, proto: inet.ProtoICMP, ttl: h.cfg.TTL}
	if dst.Is4() {
		if !inet.MayReport(quoted) {
			return
		}
	} else {
		if p.proto, p.ttl = inet.ProtoICMPv6, h.hopLimit6; !h.Possible(dst) || !inet.MayReport6(quoted) {
			return
		}
	}
	if !h.errors.Take(now) {
		h.n.ErrorsLimited++
		return
	}
	f, ok := h.frame(dst)
	if !ok {
		return
	}
	var n int
	if dst.Is4() {
		n = inet.PutICMPError(f.payload, typ, code, word, quoted)
		p.ident = h.ident.Next(*src, *dst, inet.ProtoICMP)
	} else {
		n = inet.PutICMP6Error(f.payload, typ, code, word, quoted, *src, *dst)
	}
	if mac != nil {
		if f.send(n, &p, *mac) {
			h.n.ErrorsSent++
		}
		return
	}
	hop, ok := h.Route(now, *dst)
	if !ok {
		h.n.NoSource++
		h.link.Send(0)
		return
	}
	h.n.ErrorsSent++
	h.link.SendBy(f.put(n, &p, inet.MAC{}), hop)
}
