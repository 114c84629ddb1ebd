package vswitch

import "github.com/rnicd/rnicd/internal/inet"

// verdict is what becomes of a frame: Passed, and then one of to, flood and answer.
type verdict struct {
	reason Reason
	to     *port
	flood  bool     // to all of the link, and its uplink if it comes from a program
	group  *station // to all of its members
	answer *station // asked for an address that it shares: the switch answers
}

const ndHopLimit = 255 // no router has passed it on (RFC 4861, 3.1)

func drop(r Reason) verdict { return verdict{reason: r} }
func to(p *port) verdict    { return verdict{to: p} }

// steer finds the way of a frame that came in on a port, and that its source may send.
func (c *Core) steer(in *port, h *headers, now int64) verdict {
	segment := in.segment()
	if in.isUplink() && c.plan.station(segment, h.vid, &h.src) != nil {
		return drop(Looped)
	}
	if _, ok := h.nd(); ok && h.hop != ndHopLimit {
		return drop(Malformed)
	}
	if in.isUplink() {
		if s := c.claimed(segment, h); s != nil {
			return verdict{group: s}
		}
	}
	switch {
	case h.kind == kindARP:
		return c.steerARP(in, h)
	case h.dst.IsGroup():
		return c.steerGroup(in, h)
	}
	s := c.plan.station(segment, h.vid, &h.dst)
	if s == nil {
		return c.abroad(in)
	}
	if s == in.station {
		return drop(NoStation)
	}
	if (h.kind == kindIPv4 || h.kind == kindIPv6) && !s.has(&h.to) {
		return drop(WrongAddr)
	}
	if !s.shared() {
		return to(s.members[0])
	}
	return c.steerShared(in, s, h, now)
}

// claimed is the station whose address a host of an uplink says is its own, in what others would
// learn it from: ARP and neighbour discovery. That station hears it, and may defend its address
// (RFC 5227, 2.4); the other programs go on finding it where it is.
func (c *Core) claimed(segment int, h *headers) *station {
	a := &h.from
	if h.kind == kindARP {
		a = &h.arp.SenderIP
	} else {
		typ, ok := h.nd()
		if !ok {
			return nil
		}
		if typ == inet.NDNeighbourAdvert {
			target, _ := h.target()
			a = &target
		}
	}
	return c.plan.byAddr[addrKey{linkOf(segment, h.vid), *a}]
}

// abroad is the way of what is no program's.
func (c *Core) abroad(in *port) verdict {
	if in.isUplink() {
		return drop(NoStation)
	}
	if up := c.plan.uplink(in.program.Uplink, c.id); up != nil {
		return to(up)
	}
	return drop(NoStation)
}

// steerARP: what asks for a program's address goes to that program alone, what asks for another's
// out, and an announcement to all.
func (c *Core) steerARP(in *port, h *headers) verdict {
	a := &h.arp
	if !h.dst.IsGroup() {
		s := c.plan.station(in.segment(), h.vid, &h.dst)
		switch {
		case s == nil:
			return c.abroad(in)
		case s == in.station:
			return drop(NoStation)
		case s.shared() && a.Op == inet.ARPRequest:
			return c.asked(s, s.has(&a.TargetIP))
		case s.shared():
			return verdict{group: s}
		}
		return to(s.members[0])
	}
	if a.Op != inet.ARPRequest || a.SenderIP == a.TargetIP {
		return verdict{flood: true}
	}
	return c.wanted(in, h.vid, &a.TargetIP)
}

// wanted is the way of a question to all for an address.
func (c *Core) wanted(in *port, vid uint16, a *inet.Addr) verdict {
	s := c.plan.byAddr[addrKey{linkOf(in.segment(), vid), *a}]
	switch {
	case s == nil || s == in.station:
		return c.abroad(in)
	case s.shared():
		return c.asked(s, true)
	}
	return to(s.members[0])
}

// asked: a shared address is answered for while one of its programs is attached.
func (c *Core) asked(s *station, its bool) verdict {
	if !its || s.lead() == nil {
		return drop(NoStation)
	}
	return verdict{answer: s}
}

// steerGroup is the way of what is for a group. A Neighbour Solicitation is for the one that it
// asks for.
func (c *Core) steerGroup(in *port, h *headers) verdict {
	if typ, ok := h.nd(); ok && typ == inet.NDNeighbourSolicitation {
		target, ok := h.target()
		if !ok {
			return drop(Malformed)
		}
		return c.wanted(in, h.vid, &target)
	}
	return verdict{flood: true}
}
