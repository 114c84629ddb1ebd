package tap

import "github.com/rnicd/rnicd/mem"

// cut makes segments of a large frame, one per take, as the kernel would have (tcp_gso_segment and
// inet_gso_segment, net/ipv4/tcp_offload.c and af_inet.c): lengths and checksums of their own, the
// sequence number and IPv4's identification counted up, CWR on the first alone, FIN and PSH on the
// last. It is empty when next == count.
type cut struct {
	headers
	// of the large frame, with the length of a full segment; the rest is per segment
	head  [headersMax]byte
	size  int // gso_size
	total int // octets of the large frame
	first int // where it begins in Buf 0
	next  int
	count int
	inBuf int // segments that lie in Bufs; the others are in spill
	csum  uint16
	id    uint32
	seq   uint32
}

// begin looks at a large frame of total octets whose first ones, headersMax at most, are in c.head.
// False: it is not what the kernel says it is.
func (c *cut) begin(v *vnetHeader, total int) bool {
	h, ok := parseHeaders(c.head[:min(total, headersMax)], int(v.csumStart), int(v.csumOffset))
	gsoType := byte(vnetGSOTCPv4)
	switch {
	case h.udp:
		gsoType = vnetGSOUDP
	case h.v6:
		gsoType = vnetGSOTCPv6
	}
	// Virtio 1.2 section 5.1.6.4.1: gso_type other than NONE comes with NEEDS_CSUM.
	if !ok || !v.needsCsum || v.gsoSize == 0 || v.gsoType != gsoType {
		return false
	}
	length := int(get(c.head[:], h.l3+2)) + h.l3
	if h.v6 {
		length = int(get(c.head[:], h.l3+4)) + h.l3 + ipv6Len
	}
	if length != total {
		return false
	}
	c.headers, c.size, c.total, c.csum = h, v.gsoSize, total, v.csumOffset
	c.next, c.count = 0, max(1, (total-h.len+c.size-1)/c.size)
	c.setLength(c.head[:], min(total, h.len+c.size))
	if !h.udp {
		c.seq = getSeq(c.head[:], h.l4)
	}
	if !h.v6 {
		c.id = get(c.head[:], h.l3+4)
	}
	return true
}

// layout is how the frame lies when every segment is in its Buf.
func (c *cut) layout() layout { return layout{c.len + c.size, c.size} }

// take returns the next segment; NoBuf: it is in spill and the pool is empty.
func (c *cut) take(s *scatter) mem.Buf {
	i := c.next
	n := min(c.size, c.total-c.len-i*c.size)
	var b mem.Buf
	at := s.base - c.len
	switch {
	case i == 0:
		b, at = s.armed[0], c.first
	case i < c.inBuf:
		b = s.armed[i]
	default:
		if b = s.pool.Alloc(); b == mem.NoBuf {
			return b
		}
		copy(s.pool.Slot(b)[s.base:], s.spill[s.from+(i-c.inBuf)*c.size:][:n])
	}
	d := s.pool.Desc(b)
	*d = mem.Desc{
		Off: uint32(at), Len: uint32(c.len + n), Flags: mem.RxChecksumGood, CsumStart: uint16(c.l4),
		CsumOffset: c.csum,
	}
	c.put(s.pool.Slot(b)[at:at+c.len], i, c.len+n)
	c.next++
	return b
}

// put writes the headers of segment i, of a frame of n octets.
func (c *cut) put(b []byte, i, n int) {
	copy(b, c.head[:])
	if n != c.len+c.size {
		c.setLength(b, n)
	}
	if !c.v6 {
		c.setIPv4(b, c.l3+4, (c.id+uint32(i))&0xffff)
	}
	if c.udp {
		return
	}
	putSeq(b, c.l4, c.seq+uint32(i*c.size))
	if i > 0 {
		b[c.l4+13] &^= flagCWR
	}
	if i < c.count-1 {
		b[c.l4+13] &^= flagFIN | flagPSH
	}
}
