package vswitch

import "github.com/rnicd/rnicd/internal/inet"

// steerShared finds the program of a station with several.
func (c *Core) steerShared(in *port, s *station, h *headers, now int64) verdict {
	if h.later {
		if e := c.fragments.find(in.slot, h, now); e != nil {
			if m := c.port(e.slot, e.who); m != nil {
				return to(m)
			}
		}
		return drop(FragmentUnknown)
	}
	if typ, ok := h.nd(); ok {
		switch target, whole := h.target(); {
		case typ != inet.NDNeighbourSolicitation:
			return verdict{group: s}
		case !whole:
			return drop(Malformed)
		default:
			return c.asked(s, s.has(&target))
		}
	}
	v := s.byPort(h)
	if h.fragment && v.reason == Passed {
		c.fragments.add(in.slot, h, v.to, now)
	}
	return v
}

// byPort is the member that a packet is for; without a TCP port it is the first that is attached.
func (s *station) byPort(h *headers) verdict {
	var tcp uint16
	var ok bool
	if h.icmpError() {
		if tcp, _, ok = h.quoted(); !ok {
			return drop(NoPort)
		}
	} else if _, tcp, ok = h.ports(); !ok {
		if h.proto == inet.ProtoTCP {
			return drop(NoPort)
		}
		if m := s.lead(); m != nil {
			return to(m)
		}
		return drop(NoStation)
	}
	if m := s.of(tcp); m != nil {
		return to(m)
	}
	return drop(NoPort)
}
