package ddp

import "github.com/rnicd/rnicd/internal/wq"

// Delivered is one message, in order.
type Delivered struct {
	Header Header         // of its last segment
	Len    uint32         // untagged: message length; tagged: length of the last segment's payload
	Buffer RecvBuffer     // untagged
	List   []wq.SGE       // of a buffer that is a list. The Queue's own, good until the next Post
	End    uint64         // stream position after its last segment
	Aside  [asideLen]byte // the message's octets, if PlaceAside has taken it
}

// SegmentLen is the ULPDU length of the message's last segment: what a Terminate about this message
// says.
func (d *Delivered) SegmentLen() int {
	return d.Header.Len() + int(d.Len-d.Header.MO) // MO is zero when tagged
}

// Deliver returns in d the next message that is complete below edge, in stream order and exactly
// once; false when none. edge is the stream position below which the caller has handed every octet
// to Place; it may repeat but does not go back. For the Stream's goroutine; call it until false
// after the left edge moved.
//
// After an error, Deliver still returns the messages that were whole, with all that precedes them,
// when the error was found (section 7.4 makes their Delivery a duty), and none after. Deliver
// itself finds one error: an untagged message that is next in the stream although its queue still
// waits for an earlier MSN. Look at Err after false.
func (s *Stream) Deliver(edge uint64, d *Delivered) bool {
	edge = min(edge, s.cut)
	s.edge = max(s.edge, edge)
	if s.pending.count == 0 {
		return false
	}
	return s.deliver(edge, d)
}

func (s *Stream) deliver(edge uint64, d *Delivered) bool {
	for s.pending.count > 0 {
		ref := s.pending.first()
		if ref.end > edge {
			return false
		}
		m := &s.pending.slots[ref.slot]
		d.Header, d.Len, d.End, d.List, d.Aside = m.header, m.len, ref.end, nil, m.aside
		if m.header.Tagged {
			d.Buffer = RecvBuffer{}
			s.pending.pop()
			return true
		}
		q := s.queues[m.header.QN]
		age := q.age(m.header.MSN)
		if age > 0 {
			// Every earlier octet of the stream is here, and the message of an earlier MSN is not.
			s.fail(0, TypeUntagged, CodeMSNRange, &d.Header, d.SegmentLen())
			return false
		}
		s.pending.pop()
		if age == 0 {
			d.List = q.list(q.first)
			d.Buffer = q.take()
			return true
		}
		// The ULP flushed the buffer: no Delivery is due for this message.
	}
	return false
}

// Room is how many more messages may wait for Delivery. A caller refuses a run of ULPDUs that does
// not begin at the left edge unless Room is at least the number of ULPDUs in it (any may be a
// message's last segment) and the peer sends it again. A ULPDU that begins at the left edge is
// never refused, or the stream would stand still: one place beyond PendingMax is kept for it,
// provided that the caller Delivers before it places the next. With a PendingMemory of which no
// other Stream has left anything there is none either.
func (s *Stream) Room() int {
	if !s.pending.grows() {
		return 0
	}
	return max(0, s.pendingMax-int(s.pending.count))
}

// Full is Room() == 0: refuse every segment that does not begin at the left edge.
func (s *Stream) Full() bool { return s.Room() == 0 }
