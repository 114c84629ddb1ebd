package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
)

// icmp handles an ICMP message, in the frame b; NoBuf: it came in fragments.
func (r *receiver) icmp(b mem.Buf, src inet.MAC, ip *inet.IPv4, message []byte) found {
	// The device's verdict covers IP and TCP checksums, not ICMP's: it is always checked.
	if b != mem.NoBuf && !iphost.IsEcho(message) {
		r.member.tell(b)
	}
	e, drop := r.host.ICMP(src, ip, message)
	return r.icmpOutcome(e, drop)
}

// icmp6 handles an ICMPv6 message, in the frame b; NoBuf: it came in fragments, and is not for
// other members of a Group, as no host needs to send an error so (RFC 4443 section 2.4(c)). plain:
// without extension headers; alert: with the Router Alert option for MLD.
func (r *receiver) icmp6(now int64, b mem.Buf, src inet.MAC, ip *inet.IPv6, message []byte, plain,
	alert bool) found {
	if b != mem.NoBuf && len(message) > 0 && !iphost.IsEcho6(message) {
		r.member.tell(b)
	}
	e, drop := r.host.ICMP6(now, src, ip, message, plain, alert)
	return r.icmpOutcome(e, drop)
}

// icmpOutcome is what the Host made of a message: e is an error about something of ours.
func (r *receiver) icmpOutcome(e *inet.ICMPError, drop inet.Drop) found {
	r.drop(drop)
	if r.icmpError = e; e != nil {
		return foundError
	}
	return foundNothing
}

// drop counts a drop, if it is one.
func (r *receiver) drop(why inet.Drop) found {
	if why != inet.DropNone {
		r.counters.Inet[why]++
	}
	return foundNothing
}
