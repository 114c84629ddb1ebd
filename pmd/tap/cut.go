package tap

import (
	"github.com/rnicd/rnicd/mem"
	"golang.org/x/sys/unix"
)

// cut makes segments of a large frame, one per take, as the kernel would have (tcp_gso_segment and inet_gso_segment,
// net/ipv4/tcp_offload.c and af_inet.c): lengths and checksums of their own, the sequence number and IPv4's
// identification counted up, CWR on the first alone, FIN and PSH on the last. It is empty when next == count.
type cut struct {
	headers
	head  [headersMax]byte // of the large frame, with the length of a full segment; the rest is per segment
	size  int              // gso_size
	total int              // octets of the large frame
	first int              // where it begins in Buf 0
	next  int
	count int
	inBuf int // segments that lie in Bufs; the others are in spill
	csum  uint16
	id    uint32
	seq   uint32
}

// begin looks at a large frame of total octets whose first ones, headersMax at most, are in c.head. False: it is not
// what the kernel says it is.
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
		Off: uint32(at), Len: uint32(c.len + n), Flags: mem.RxChecksumGood, CsumStart: uint16(c.l4), CsumOffset: c.csum,
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

// receive is Rx with a virtio_net_hdr: first what is left of a large frame, then what waits in the kernel. It returns
// less than it was given room for only when neither has more, or the pool is empty.
func (q *Queue) receive(bufs []mem.Buf) int {
	s, c := &q.scatter, &q.cut
	n := 0
	for n < len(bufs) {
		if c.next < c.count {
			b := c.take(s)
			if b == mem.NoBuf {
				q.counters.RxNoBuf++
				break
			}
			bufs[n] = b
			n++
			q.counters.RxOctets += uint64(q.pool.Desc(b).Len)
			if c.next == c.count {
				s.next(c.layout(), c.len, c.inBuf)
			}
			continue
		}
		if !s.refill() {
			q.counters.RxNoBuf++
			break
		}
		total, errno := s.read(q.fd)
		if errno != 0 {
			// EINTR: a signal found us between frames; the next poll goes on.
			if errno != unix.EAGAIN && errno != unix.EINTR {
				q.counters.RxErrors++
			}
			break
		}
		if b := q.sort(total); b != mem.NoBuf {
			bufs[n] = b
			n++
		}
	}
	q.counters.RxFrames += uint64(n)
	return n
}

// sort returns the frame of total octets that was read, if it is one; a large one it leaves to cut.
func (q *Queue) sort(total int) mem.Buf {
	s, c := &q.scatter, &q.cut
	v := parseVnet(&s.hdr)
	if v.gsoType != vnetGSONone {
		q.large(&v, total)
		return mem.NoBuf
	}
	if total > q.rxMax || total < ethertypeAt+2 {
		q.refuse(total)
		return mem.NoBuf
	}
	if total > s.lay.first {
		s.refit(0, layout{total, 1}, total)
	}
	c.first = s.base - s.h
	b := s.takeFirst()
	d := q.pool.Desc(b)
	*d = mem.Desc{Off: uint32(c.first), Len: uint32(total)}
	if !v.describe(d) {
		q.counters.RxErrors++
		q.pool.Free(b)
		return mem.NoBuf
	}
	q.counters.RxOctets += uint64(total)
	return b
}

// large takes a frame to be cut, or drops it.
func (q *Queue) large(v *vnetHeader, total int) {
	s, c := &q.scatter, &q.cut
	if total < 0 || total > segmentedMax {
		q.refuse(total)
		return
	}
	s.gather(c.head[:], 0, min(total, headersMax))
	switch {
	case !c.begin(v, total):
		c.next, c.count = 0, 0
		q.counters.RxErrors++
	case min(total, c.len+c.size) > q.rxMax:
		q.counters.RxTooLong += uint64(c.count)
		c.next, c.count = 0, 0
	default:
		c.first = s.base - s.h
		c.inBuf = min(c.count, s.n)
		s.mend(c.layout(), total)
	}
}

// giveBack frees what the queue holds.
func (q *Queue) giveBack() {
	if !q.vnet {
		return
	}
	s, c := &q.scatter, &q.cut
	if c.next < c.count { // those before it were handed out
		k := min(c.next, c.inBuf)
		s.n = copy(s.armed[:], s.armed[k:s.n])
		c.next, c.count = 0, 0
	}
	s.release()
}
