package sim

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// tap stands between a host and all that befalls its frames. It sees each segment that the host
// sends, and each that reaches it as it was sent. So the oracle knows what an end of a connection
// can know of the other end: an end that waits in vain is excused where the word that it waits for
// was lost, and not where it arrived.
type tap struct {
	inner pmd.Timed
	pool  *mem.Pool
	mac   inet.MAC

	offload bool // the host leaves checksums to its device, which is this

	legs map[ports]*leg // of connections, by the host's own port and the other's
	seg  tcp.Segment
}

var _ pmd.Timed = (*tap)(nil)

// leg is what one host sent and received on one connection.
type leg struct {
	acked tcp.Seq // SEG.ACK of the last segment that it sent
	right tcp.Seq // right edge of the window that it has announced
	shift int8    // of that window
	end   tcp.Seq // after the last octet that it sent

	// what it received: the first octet, and the first after those that came in order
	first, next tcp.Seq

	resets []reset // that reached it
	gone   bool    // it has sent a RST: for its TCP there is no such connection any more
	strays int     // segments without RST that reached it since then
	sent   int     // RSTs
}

// reset is a RST that reached a host.
type reset struct {
	seq           tcp.Seq
	before, right tcp.Seq // of the leg, when it came
	answered      bool    // the host has sent a segment since then,
	after         tcp.Seq // and this was its SEG.ACK
	moved         bool    // before that, more octets came
}

func (t *tap) leg(own, other uint16) *leg {
	key := ports{own, other}
	l := t.legs[key]
	if l == nil {
		l = &leg{}
		t.legs[key] = l
	}
	return l
}

// Rx implements pmd.Queue.
func (t *tap) Rx(bufs []mem.Buf) int {
	n := t.inner.Rx(bufs)
	for _, b := range bufs[:n] {
		if t.whole(t.pool.Data(b)) {
			if t.offload {
				t.pool.Desc(b).Flags |= mem.RxChecksumGood
			}
			t.leg(t.seg.DstPort, t.seg.SrcPort).received(&t.seg)
		}
	}
	return n
}

// Tx implements pmd.Queue.
func (t *tap) Tx(bufs []mem.Buf) int {
	if t.offload {
		t.complete(bufs)
	}
	n := t.inner.Tx(bufs)
	for _, b := range bufs[:n] {
		if l4, ok := tcpOf(t.pool.Data(b)); ok && tcp.Parse(l4, &t.seg) == tcp.DropNone {
			t.leg(t.seg.SrcPort, t.seg.DstPort).sends(&t.seg)
		}
	}
	return n
}

// complete does what the host has left to its device. What is not taken is offered again, and is
// complete then.
func (t *tap) complete(bufs []mem.Buf) {
	for _, b := range bufs {
		d := t.pool.Desc(b)
		if d.Flags&mem.TxChecksum != 0 && pmd.CompleteChecksum(t.pool.Data(b), d.CsumStart,
			d.CsumOffset) {
			d.Flags &^= mem.TxChecksum
		}
	}
}

// Counters implements pmd.Queue.
func (t *tap) Counters() pmd.Counters { return t.inner.Counters() }

// Deadline implements pmd.Timed.
func (t *tap) Deadline() int64 { return t.inner.Deadline() }

// whole says whether frame is a segment for the host and not damaged, as far as checksums tell, and
// decodes it.
func (t *tap) whole(frame []byte) bool {
	l4, ok := tcpOf(frame)
	if !ok {
		return false
	}
	e, packet, _ := inet.ParseEthernet(frame)
	if e.Dst != t.mac {
		return false
	}
	var src, dst inet.Addr
	if e.Type == inet.EtherTypeIPv6 {
		h, _, _ := inet.ParseIPv6(packet)
		src, dst = h.Src, h.Dst
	} else {
		h, _, d := inet.ParseIPv4(packet, false)
		if d != inet.DropNone {
			return false
		}
		src, dst = h.Src, h.Dst
	}
	sum := inet.PseudoSum(src, dst, inet.ProtoTCP, len(l4))
	return inet.Checksum(l4, sum) == 0 && tcp.Parse(l4, &t.seg) == tcp.DropNone
}

func (l *leg) sends(s *tcp.Segment) {
	if s.Flags&tcp.RST != 0 {
		l.gone = true
		l.sent++
		return
	}
	if end := s.Seq + tcp.Seq(s.SeqLen()); s.Flags&tcp.SYN != 0 || l.end.Less(end) {
		l.end = end
	}
	if s.Flags&tcp.SYN != 0 {
		l.shift = max(0, s.Options.WindowScale)
	}
	if s.Flags&tcp.ACK == 0 {
		return
	}
	l.acked = s.Ack
	window := tcp.Seq(s.Window)
	if s.Flags&tcp.SYN == 0 {
		window <<= l.shift
	}
	if right := s.Ack + window; s.Flags&tcp.SYN != 0 || l.right.Less(right) {
		l.right = right
	}
	for i := range l.resets {
		if r := &l.resets[i]; !r.answered {
			r.answered, r.after = true, s.Ack
		}
	}
}

func (l *leg) received(s *tcp.Segment) {
	switch {
	case l.gone && s.Flags&tcp.RST == 0:
		l.strays++
		return
	case l.gone:
		return
	case s.Flags&tcp.RST != 0:
		l.resets = append(l.resets, reset{seq: s.Seq, before: l.acked, right: l.right})
		return
	case s.Flags&tcp.SYN != 0:
		l.first, l.next = s.Seq+1, s.Seq+1
		return
	}
	if end := s.Seq + tcp.Seq(s.Len); s.Seq.LessEq(l.next) && l.next.Less(end) {
		l.next = end
	}
	if s.SeqLen() == 0 {
		return
	}
	for i := range l.resets {
		if r := &l.resets[i]; !r.answered {
			r.moved = true
		}
	}
}

// refusable says whether the host's TCP need not have ended the connection for r: "If the RST bit
// is set and the sequence number exactly matches the next expected sequence number (RCV.NXT), then
// TCP endpoints MUST reset the connection" (RFC 9293 section 3.10.7.4). Anywhere else in the window
// it "MUST send an acknowledgment (challenge ACK)"; outside of it, it is dropped silently. RCV.NXT
// is what the host acknowledges next; where it sends nothing more, what it has acknowledged last.
func (r *reset) refusable() bool {
	lo, hi := r.before, r.before
	if r.answered {
		if hi = r.after; !r.moved {
			lo = hi
		}
	}
	inWindow := hi.Less(r.seq) && r.seq.Less(r.right)
	return !(lo == hi && r.seq == lo) && (!inWindow || r.answered)
}
