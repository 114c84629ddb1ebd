package ddp

import "math/bits"

// pendingMessage is a message whose last segment was placed.
type pendingMessage struct {
	header Header // of the last segment
	len    uint32 // Delivered.Len
}

// pendingRef orders messages without moving them.
type pendingRef struct {
	end  uint64 // stream position after the last segment: unique, the order of Delivery
	slot uint32
}

// pendingList holds messages in stream order until the left edge passes them. In stream order both
// ends cost O(1); a message that arrives out of order is found by bisection and moves the
// references on its shorter side: a hole that fills late moves few, for it belongs near the front.
type pendingList struct {
	refs  []pendingRef // ring, power of two
	head  uint32       // free-running
	count uint32
	slots []pendingMessage
	free  []uint32 // stack of unused slots
}

func (l *pendingList) init(max int) {
	*l = pendingList{
		refs:  make([]pendingRef, 1<<bits.Len(uint(max-1))),
		slots: make([]pendingMessage, max),
		free:  make([]uint32, max),
	}
	for i := range l.free {
		l.free[i] = uint32(max - 1 - i)
	}
}

func (l *pendingList) at(i uint32) *pendingRef {
	return &l.refs[(l.head+i)&uint32(len(l.refs)-1)]
}

// insert adds a message that ends at end and returns its slot to fill; nil when there already is
// one with that end. The list must not be full.
func (l *pendingList) insert(end uint64) *pendingMessage {
	i := l.count
	if i > 0 && l.at(i-1).end >= end {
		if i = l.search(end); l.at(i).end == end {
			return nil
		}
	}
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	if i < l.count-i { // fewer before than after
		l.head--
		for k := uint32(0); k < i; k++ {
			*l.at(k) = *l.at(k + 1)
		}
	} else {
		for k := l.count; k > i; k-- {
			*l.at(k) = *l.at(k - 1)
		}
	}
	l.count++
	*l.at(i) = pendingRef{end: end, slot: slot}
	return &l.slots[slot]
}

// search returns the index of the first message that ends at or after end.
func (l *pendingList) search(end uint64) uint32 {
	lo, hi := uint32(0), l.count
	for lo < hi {
		if mid := (lo + hi) / 2; l.at(mid).end < end {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (l *pendingList) pop() {
	l.free = append(l.free, l.at(0).slot) // within capacity: one entry per slot
	l.head++
	l.count--
}

// Delivered is one message, in order.
type Delivered struct {
	Header Header     // of its last segment
	Len    uint32     // untagged: message length; tagged: length of the last segment's payload
	Buffer RecvBuffer // untagged
	List   []Range    // of a buffer that is a list. The Queue's own, good until the next Post
	End    uint64     // stream position after its last segment
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
		ref := s.pending.at(0)
		if ref.end > edge {
			return false
		}
		m := &s.pending.slots[ref.slot]
		d.Header, d.Len, d.End, d.List = m.header, m.len, ref.end, nil
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
		// The ULP flushed the buffer: nobody waits for this message any more.
	}
	return false
}

// Room is how many more messages may wait for Delivery. A caller refuses a run of ULPDUs that does
// not begin at the left edge unless Room is at least the number of ULPDUs in it (any may be a
// message's last segment) and the peer sends it again. A ULPDU that begins at the left edge is
// never refused, or the stream would stand still: one place beyond PendingMax is kept for it,
// provided that the caller Delivers before it places the next.
func (s *Stream) Room() int { return max(0, s.pendingMax-int(s.pending.count)) }

// Full is Room() == 0: refuse every segment that does not begin at the left edge.
func (s *Stream) Full() bool { return int(s.pending.count) >= s.pendingMax }
