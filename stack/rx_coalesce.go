package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// Octets of a TCP header that coalesce looks at.
const (
	tcpSeqAt    = 4
	tcpFlagsAt  = 13
	tcpWindowAt = 14
	tcpUrgentAt = 18

	timestampOption = 12 // octets, padded: all the options of most segments
)

// coalesce looks for frames of this burst that continue the segment, which is c's, and adds them to
// r.bufs and r.data; the segment then stands for all of them. It is generic receive offload (as
// tcp_gro_receive, net/ipv4/tcp_offload.c) without merging: each frame stays in its Buf and is
// offered at its own boundaries. The headers, the connection and TCP's acceptance are looked at
// once for all.
//
// The frames differ in nothing that TCP would act upon. They have the same headers except for
// lengths, identification, sequence number, checksums and PSH, and the same payload length except
// for the last, which may be shorter. The device must have found all checksums good, and there are
// no options or extensions of IP.
func (r *receiver) coalesce(c *Conn) {
	if !r.good || r.at+1 >= r.end {
		return
	}
	s, octets := &r.seg, r.octets
	head := r.pool.Data(r.buf)
	l4 := r.l4Plain(&c.tcp.ID().Remote)
	if cap(head)-cap(octets) != l4 || len(head) != l4+len(octets) || c.phase != phaseOpen ||
		c.marks&markAbort != 0 {
		return
	}
	room := c.tcp.Coalescible(s)
	end := l4 + s.HdrLen
	part, total := s.Len, s.Len
	for _, next := range r.burst[r.at+1 : r.end] {
		if r.pool.Desc(next).Flags&mem.RxChecksumGood == 0 {
			break
		}
		frame := r.pool.Data(next)
		k := len(frame) - end
		if k <= 0 || k > part || k > room-total ||
			!r.follows(head, frame, l4, end, uint32(s.Seq)+uint32(total)) {
			break
		}
		total += k
		r.bufs, r.data = append(r.bufs, next), append(r.data, frame[end:])
		if k < part {
			break
		}
	}
	if len(r.data) > 1 {
		s.Part, s.Len = part, total
	}
}

// follows says whether the headers of f are those of head, with sequence number seq, except for
// what coalesce says may differ. They end at end; the TCP header begins at l4.
func (r *receiver) follows(head, f []byte, l4, end int, seq uint32) bool {
	head, h := head[:end], f[:end]
	be := binary.BigEndian
	l3 := r.l2
	if !sameLink(h[:l3+2], head[:l3+2]) {
		return false
	}
	if head[l3]>>4 == 4 {
		if int(be.Uint16(h[l3+2:])) != len(f)-l3 ||
			be.Uint32(h[l3+6:]) != be.Uint32(head[l3+6:]) {
			return false
		}
	} else if string(h[l3:l3+4]) != string(head[l3:l3+4]) || int(be.Uint16(h[l3+4:])) != len(f)-l4 ||
		string(h[l3+6:l4-8]) != string(head[l3+6:l4-8]) {
		return false
	}
	// The last eight octets of either IP header are addresses or their end, and then come the
	// ports.
	if be.Uint64(h[l4-8:]) != be.Uint64(head[l4-8:]) || be.Uint32(h[l4:]) != be.Uint32(head[l4:]) {
		return false
	}
	t, u := (*[tcp.HeaderLenMin]byte)(h[l4:]), (*[tcp.HeaderLenMin]byte)(head[l4:])
	return be.Uint32(t[4:]) == seq && be.Uint32(t[8:]) == be.Uint32(u[8:]) && t[12] == u[12] &&
		(t[tcpFlagsAt]^u[tcpFlagsAt])&^byte(tcp.PSH) == 0 &&
		be.Uint16(t[tcpWindowAt:]) == be.Uint16(u[tcpWindowAt:]) &&
		be.Uint16(t[tcpUrgentAt:]) == be.Uint16(u[tcpUrgentAt:]) &&
		sameOptions(h[l4+tcp.HeaderLenMin:], head[l4+tcp.HeaderLenMin:])
}

// sameLink says whether two link headers, and the two octets after them, are alike: 16 octets, or
// 20 with a VLAN tag. Compared as words: a call for so few costs more than it does.
func sameLink(a, b []byte) bool {
	ne, last := binary.NativeEndian, len(a)-8
	return ne.Uint64(a) == ne.Uint64(b) && ne.Uint64(a[8:]) == ne.Uint64(b[8:]) &&
		ne.Uint64(a[last:]) == ne.Uint64(b[last:])
}

// sameOptions says whether the options of two TCP headers, which are equally long, are alike.
func sameOptions(a, b []byte) bool {
	if len(a) != timestampOption || len(b) != timestampOption {
		return string(a) == string(b)
	}
	ne, last := binary.NativeEndian, timestampOption-8
	return ne.Uint64(a) == ne.Uint64(b) && ne.Uint64(a[last:]) == ne.Uint64(b[last:])
}
