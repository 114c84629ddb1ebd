package tcp

// Coalescible says how many octets, of s and the segments that follow it without a gap, may be
// given to Input as one segment: s with their number in Len and that of each in Part. 0: s must go
// by itself. The others must carry the same header as s, except for PSH and the sequence number, so
// that TCP may do once what it would do for each. It allows only what is new and in order, so that
// Input's Arrival has all of it.
func (c *Conn) Coalescible(s *Segment) int {
	if s.Len == 0 || s.Flags&^PSH != ACK || !c.state.receives() || len(c.held.spans) != 0 ||
		c.hasFin || c.orphaned ||
		c.ecn.on && (c.ecn.echo || s.TOS&ecnMask == ecnCE) || s.Seq != c.rcvNxt() {
		return 0
	}
	return int(max(c.rcvAdv, c.edge) - c.edge)
}

// Part makes part, a zero Arrival or the part before, the first k segments of rest, the Arrival of
// segments coalesced, and takes them off rest: each part is committed by itself, in order. The last
// of the k has last octets, the others each. It goes field by field: a copy of all of rest would
// wait for the stores of the call before.
func (c *Conn) Part(part, rest *Arrival, k, each, last int) {
	n := (k-1)*each + last
	part.Offset, part.Skip, part.Len, part.InOrder = rest.Offset, rest.Skip, n, rest.InOrder
	part.full = 0
	if k > 1 && each >= c.fullLen() {
		part.full = uint8(min(k-1, ackEvery))
	}
	if last >= c.fullLen() {
		part.full++
	}
	rest.Offset += uint64(n)
	rest.Skip += n
	rest.Len -= n
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

// measureMSS follows the peer's segment size up at once, and down when two segments in a row have
// the same smaller size without PSH: then it is the path that ends them, not what there was to send
// (Linux: tcp_measure_rcv_mss).
func (c *Conn) measureMSS(s *Segment) {
	n := s.size()
	if n == 0 {
		return
	}
	if n >= int(c.rcvMSS) {
		c.rcvMSS = uint16(min(n, int(c.mss)))
	} else if n >= mssAbsent && c.alike(s, n) >= 2 {
		c.rcvMSS = uint16(n)
	}
	if c.lastSize = uint16(s.Len % n); c.lastSize == 0 {
		c.lastSize = uint16(n)
	}
}

// alike is how many segments in a row, up to the last of s, had n octets and no PSH, except for the
// first.
func (c *Conn) alike(s *Segment, n int) int {
	full := s.Len / n
	if s.Flags&PSH != 0 && s.Len%n == 0 {
		full--
	}
	if full > 0 && int(c.lastSize) == n {
		full++
	}
	return full
}

// fullLen is how long a segment is that counts as full-sized towards the next ACK.
func (c *Conn) fullLen() int { return int(c.rcvMSS - c.rcvMSS/8) }
