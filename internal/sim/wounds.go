package sim

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tcp"
)

// wounds knows which octets of the TCP streams that a host receives were damaged without TCP's
// noticing, so that a connection is excused for damage that it had, where it had it, and for no
// other.
type wounds struct {
	streams map[ports]*hurtStream
	seg     tcp.Segment
}

// ports of one direction of a connection: the sender's and the receiver's.
type ports struct{ src, dst uint16 }

type hurtStream struct {
	first tcp.Seq  // sequence number of its first octet
	words []uint64 // stream offsets of words that are not as they were sent
}

// watch is a fault.Queue's witness.
func (w *wounds) watch(frame []byte, swapped [2]int) {
	l4, ok := tcpOf(frame)
	if !ok || tcp.Parse(l4, &w.seg) != tcp.DropNone {
		return
	}
	key := ports{w.seg.SrcPort, w.seg.DstPort}
	s := w.streams[key]
	if s == nil {
		if w.seg.Flags&tcp.SYN != 0 {
			w.streams[key] = &hurtStream{first: w.seg.Seq + 1}
		}
		return
	}
	if swapped == [2]int{} {
		return
	}
	data := cap(frame) - cap(l4) + w.seg.HdrLen
	for _, at := range swapped {
		s.words = append(s.words, uint64(uint32(w.seg.Seq-s.first))+uint64(at-data))
	}
}

// tcpOf is the TCP part of a frame.
func tcpOf(frame []byte) (l4 []byte, ok bool) {
	e, packet, d := inet.ParseEthernet(frame)
	switch {
	case d != inet.DropNone:
		return nil, false
	case e.Type == inet.EtherTypeIPv6:
		h, l4, d := inet.ParseIPv6(packet)
		return l4, d == inet.DropNone && h.NextHeader == inet.ProtoTCP
	case e.Type == inet.EtherTypeIPv4:
		h, l4, d := inet.ParseIPv4(packet, true)
		return l4, d == inet.DropNone && h.Proto == inet.ProtoTCP
	}
	return nil, false
}

// hurt says whether octets [lo, hi) of the TCP stream to a host, start-up frames included, were
// damaged in a segment that reached it.
func (s *session) hurt(host int, lo, hi uint64) bool {
	p := s.peers[host]
	stream := p.host.wounds.streams[ports{p.qp.RemoteAddr().Port(), p.qp.LocalAddr().Port()}]
	if stream == nil {
		return false
	}
	for _, at := range stream.words {
		if at < hi && at+2 > lo {
			return true
		}
	}
	return false
}

// hurtFPDU is hurt for octets of the MPA stream, from lo on.
func (s *session) hurtFPDU(host int, lo, n uint64) bool {
	_, base := s.readyFrame(host)
	return s.hurt(host, base+lo, base+lo+n)
}

// hurtReady says whether the Ready-to-Receive frame to a host was damaged.
func (s *session) hurtReady(host int) bool {
	lo, hi := s.readyFrame(host)
	return s.hurt(host, lo, hi)
}

// readyFrame is where in the stream to a host the Ready-to-Receive frame stands; FPDUs begin after
// it. Without one it is empty.
func (s *session) readyFrame(host int) (lo, hi uint64) {
	if s.c.Dialect == rnic.Culley02 {
		return 0, 0
	}
	n := uint64(mpa.FrameLen + len(s.peers[1-host].private))
	switch {
	case s.c.Dialect == rnic.RFC6581:
		n += mpa.EnhancedLen
	case s.c.Dialect == rnic.RTR && host != s.c.Dialer:
		return n, n + mpa.FrameLen
	}
	return n, n
}
