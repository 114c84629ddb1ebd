package inet

// Next Header values of extension headers (RFC 8200, 4).
const (
	ProtoHopByHop  = 0
	extRouting     = 43
	ProtoFragment6 = 44
	ProtoNoNext    = 59
	extDestination = 60
)

// extHeadersMax bounds the chain. A sender that keeps to RFC 8200, 4.1 has at most six.
const extHeadersMax = 8

// Codes of ICMP6ParameterProblem (RFC 4443, 3.4).
const (
	ProblemField      = 0
	ProblemNextHeader = 1
	ProblemOption     = 2
)

// Chain is where a walk along extension headers ended. With DropNone: at Proto, whose octets begin
// at Off of the walked payload, or at a Fragment header (HasFragment), whose fragment begins at
// Off.
type Chain struct {
	Proto       uint8
	Off         int
	Fragment    Fragment6
	HasFragment bool
	Alert       bool // a Router Alert option for MLD stands among the hop-by-hop options (RFC 2711)

	// With DropExtension and Report: the Parameter Problem that is owed. Pointer counts from the
	// start of the IPv6 header.
	Report    bool
	Multicast bool // owed even when the packet came by multicast (RFC 8200, 4.2: options 10......)
	Code      uint8
	Pointer   int

	named int // Pointer of the Next Header field that named Proto
}

// UnknownProto makes c the report on a Proto that this host does not know (RFC 8200, 4).
func (c *Chain) UnknownProto() {
	c.Report, c.Multicast, c.Code, c.Pointer = true, false, ProblemNextHeader, c.named
}

// WalkIPv6 steps along the extension headers of payload, the first being of type next, in the order
// in which they stand. at is where payload begins in the packet: IPv6Len. Hop-by-hop options stand
// only first (RFC 8200, 4.3); elsewhere they are an unknown header, as AH and ESP are everywhere. A
// Fragment header ends the walk; after an atomic fragment, and over a reassembled payload, it is
// called again with again set, so that a second Fragment header is not applied; the first one then
// named Proto.
func WalkIPv6(payload []byte, next uint8, at int, again bool) (c Chain, d Drop) {
	c.Proto, c.named = next, at-IPv6Len+6
	if again {
		c.named = at - Fragment6Len
	}
	for n := range extHeadersMax + 1 {
		switch c.Proto {
		case ProtoHopByHop:
			if n != 0 || again {
				c.UnknownProto()
				return c, DropExtension
			}
		case ProtoFragment6:
			if again {
				c.UnknownProto()
				return c, DropExtension
			}
		case extRouting, extDestination:
		default:
			return c, DropNone
		}
		rest := payload[c.Off:]
		if len(rest) < 8 {
			return c, DropExtension
		}
		if c.Proto == ProtoFragment6 {
			c.Fragment, c.HasFragment = parseFragment6((*[Fragment6Len]byte)(rest)), true
			c.Off += Fragment6Len
			return c, DropNone
		}
		length := 8 + 8*int(rest[1])
		if length > len(rest) {
			return c, DropExtension
		}
		if !c.header(rest[:length], at+c.Off) {
			return c, DropExtension
		}
		c.Proto, c.named = rest[0], at+c.Off
		c.Off += length
	}
	return c, DropExtension
}

// header looks into one extension header that stands at at; false: the packet is dropped.
func (c *Chain) header(h []byte, at int) bool {
	if c.Proto != extRouting {
		return c.options(h, at)
	}
	// Whatever the type, none is followed here (RFC 8200, 4.4).
	if h[3] != 0 {
		c.Report, c.Code, c.Pointer = true, ProblemField, at+2
	}
	return h[3] == 0
}

// options walks Hop-by-Hop or Destination options: none is known except the pads (RFC 8200, 4.2)
// and, hop-by-hop, Router Alert.
func (c *Chain) options(h []byte, at int) bool {
	for i := 2; i < len(h); {
		kind := h[i]
		if kind == 0 { // Pad1
			i++
			continue
		}
		if i+1 >= len(h) || i+2+int(h[i+1]) > len(h) {
			return false
		}
		if kind>>6 != 0 {
			c.Report, c.Multicast = kind>>6 >= 2, kind>>6 == 2
			c.Code, c.Pointer = ProblemOption, at+i
			return false
		}
		if kind == optionRouterAlert && c.Proto == ProtoHopByHop && h[i+1] == optionRouterAlertLen {
			c.Alert = c.Alert || h[i+2] == 0 && h[i+3] == 0
		}
		i += 2 + int(h[i+1])
	}
	return true
}
