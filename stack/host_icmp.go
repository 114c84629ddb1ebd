package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
)

// icmpError acts on an error about a datagram of ours, or about a segment that is still
// unacknowledged (RFC 5927 section 4.1: the quoted sequence number proves the router saw it). Hard
// errors end only a connection that is being opened (section 5.2), a path MTU lowers the EMSS of
// any, the rest is advice.
func (p *Poller) icmpError(e *inet.ICMPError) {
	if e.Proto != inet.ProtoTCP && e.Proto != inet.ProtoUDP || !p.host.IsLocal(&e.Src) ||
		len(e.Quoted) < 8 {
		p.n.ICMPIgnored++
		return
	}
	if e.Proto == inet.ProtoUDP {
		p.datagramError(e)
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
		p.paths.tooBig(p.now, c, e)
	case opening && hard(e):
		p.n.ICMPHard++
		c.abort(whyRefused)
	default:
		p.n.ICMPSoft++
		if unreachable(e) {
			p.advise(c, whatIs(e))
		}
	}
}

// datagramError acts on an ICMP error about a datagram of ours.
func (p *Poller) datagramError(e *inet.ICMPError) {
	d := Datagram{Local: e.Src, Remote: e.Dst, LocalPort: binary.BigEndian.Uint16(e.Quoted),
		RemotePort: binary.BigEndian.Uint16(e.Quoted[2:])}
	to := p.rx.udpPorts[d.LocalPort]
	if to == nil || !hard(e) {
		p.n.ICMPIgnored++
		return
	}
	to.Unreachable(&d)
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
