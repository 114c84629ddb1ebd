package tcp

// Joinable says how many octets, of s and the segments that follow it without a gap, may be given to Input as one segment:
// s with their number in Len and that of each in Part. 0: s must go by itself. The others must carry the same header as s,
// but for PSH and the sequence number, so that TCP may do once what it would do for each. It allows only what is new and in
// order, so that Input's Arrival has all of it.
func (c *Conn) Joinable(s *Segment) int {
	if s.Len == 0 || s.Flags&^PSH != ACK || !c.state.receives() || len(c.held.spans) != 0 || c.hasFin || c.orphaned ||
		c.ecn.on && (c.ecn.echo || s.TOS&ecnMask == ecnCE) || s.Seq != c.rcvNxt() {
		return 0
	}
	return int(max(c.rcvAdv, c.edge) - c.edge)
}

// Part takes the first n octets off a, the Arrival of segments joined: each part is committed by itself, in order.
func (c *Conn) Part(a *Arrival, n int) Arrival {
	part := *a
	part.Len = n
	part.full = n >= c.fullLen()
	a.Offset += uint64(n)
	a.Skip += n
	a.Len -= n
	return part
}

// parts is how many segments s stands for.
func (s *Segment) parts() int {
	if s.Part == 0 {
		return 1
	}
	return (s.Len + s.Part - 1) / s.Part
}

// size is the payload of one segment.
func (s *Segment) size() int {
	if s.Part == 0 {
		return s.Len
	}
	return s.Part
}

// fullLen is how long a segment is that counts as full-sized towards the next ACK.
func (c *Conn) fullLen() int { return c.rcvMSS - c.rcvMSS/8 }
