package ddp

import "github.com/rnicd/rnicd/mem"

// The way of a segment:
//
//	Begin  1. after an error, or below the left edge: dropped, counted
//	       2. header, from one piece or put together in scratch
//	       3. version, on every segment: one value for the stream (section 6.1), though section 9.1 does not list it
//	       4. a queue number that cannot exist
//	caller 5. whether the ULP wants such a segment, and which right a Tagged one needs
//	Place  6. the checks of section 9.1 for its model, all before the first octet is written
//	       7. one copy
//	       8. L flag: the message waits for Delivery

// Begin reads the header of one segment. start and end are its place in the stream (its FPDU's
// first octet and the one after its CRC): the order. n is the ULPDU's length, pieces are its octets
// in order, cut anywhere; they stay the caller's. The caller has made sure of Room.
//
// The header, which is the Stream's own until the next call, is of the stream's version and, when
// Untagged, of a QN below len(StreamConfig.Queues). The caller looks at it, may Post buffers and
// change Queues, and then either calls Place with the same arguments or does not want the segment
// and calls Disable. A nil header: there is nothing to place. Then the segment was dropped, or
// Error is the stream's first and fatal one. After that segments are dropped silently, without one
// (section 9.1); the caller goes on calling Begin for what arrives as long as it moves the edge,
// for that is how Deliver knows what is missing.
//
// It panics when Room was not heeded.
func (s *Stream) Begin(start, end uint64, n int, pieces [][]byte) (*Header, *Error) {
	if s.closed {
		s.cut = min(s.cut, start)
		s.stats.AfterError++
		return nil, nil
	}
	// below the left edge: all of it was placed before, and what it ended was delivered
	if end <= s.edge {
		s.stats.Duplicates++
		return nil, nil
	}
	h := &s.header
	headerLen, ok := 0, false
	if len(pieces) > 0 {
		headerLen, ok = h.parse(pieces[0])
	}
	if !ok {
		headerLen, ok = s.readHeader(pieces)
	}
	if !ok || headerLen > n {
		return nil, s.fail(start, TypeLocalCatastrophic, 0, nil, n)
	}
	if h.Last && len(s.pending.free) == 0 {
		panic("ddp: Begin without Room")
	}
	switch {
	case h.Version != s.version && h.Tagged:
		return nil, s.fail(start, TypeTagged, CodeTaggedVersion, h, n)
	case h.Version != s.version:
		return nil, s.fail(start, TypeUntagged, CodeUntaggedVersion, h, n)
	case !h.Tagged && uint64(h.QN) >= uint64(len(s.queues)):
		return nil, s.fail(start, TypeUntagged, CodeInvalidQN, h, n)
	}
	return h, nil
}

// Place validates (sections 9.1, 9.2) the segment that Begin has just returned the header of, and
// copies it into its buffer. need are the rights that the range of a Tagged one must have. The
// caller brackets bursts with the Table's Reader. An Error is the stream's first and fatal one, and
// nothing of the segment was written. It panics when the pieces are not n octets.
func (s *Stream) Place(start, end uint64, n int, pieces [][]byte, need mem.Access) *Error {
	if s.header.Tagged {
		return s.placeTagged(start, end, n, pieces, need)
	}
	return s.placeUntagged(start, end, n, pieces)
}

// asideLen is the length of a message that PlaceAside takes.
const asideLen = 8

// PlaceAside is Place for an Untagged message of one segment with asideLen octets that do not
// belong into the buffer of its MSN, as RDMAP's Immediate Data: the octets stay in the Stream and
// come in Delivered.Aside. The buffer is used up, and nothing of it is looked at or written. It
// panics when the segment in hand is not such a message.
func (s *Stream) PlaceAside(start, end uint64, n int, pieces [][]byte) *Error {
	h := &s.header
	if h.Tagged || !h.Last || h.MO != 0 || n != UntaggedLen+asideLen {
		panic("ddp: PlaceAside of another message")
	}
	q := s.queues[h.QN]
	if q == nil {
		return s.fail(start, TypeUntagged, CodeInvalidQN, h, n)
	}
	slot, code := q.find(h.MSN)
	switch {
	case code != 0:
		return s.fail(start, TypeUntagged, code, h, n)
	case slot.placedEnd == 0:
		slot.aside = true
		q.note(slot, h, end)
		s.stats.Segments++
		s.stats.Octets += asideLen
		if m := s.whole(end, asideLen); m != nil {
			copyPieces(m.aside[:], UntaggedLen, pieces)
		}
	case slot.lastEnd == end:
		s.stats.Duplicates++
	default:
		// another message has begun in the buffer
		return s.fail(start, TypeUntagged, CodeMSNRange, h, n)
	}
	return nil
}

// readHeader decodes into s.header. Only a header that spans pieces is copied.
func (s *Stream) readHeader(pieces [][]byte) (n int, ok bool) {
	if len(pieces) == 0 {
		return 0, false
	}
	if n, ok = s.header.parse(pieces[0]); ok || len(pieces) == 1 {
		return n, ok
	}
	filled := 0
	for _, p := range pieces {
		filled += copy(s.scratch[filled:], p)
	}
	return s.header.parse(s.scratch[:filled])
}

func (s *Stream) placeTagged(start, end uint64, n int, pieces [][]byte, need mem.Access) *Error {
	h := &s.header
	payload := n - TaggedLen
	if payload > 0 { // STag and TO of a zero-length message must not be checked, section 7.2
		dst, verdict := s.table.Check(s.domain, s.id, h.STag, h.TO, payload, need)
		if verdict != mem.CheckOK {
			return s.fail(start, TypeTagged, taggedCode[verdict], h, n)
		}
		copyPieces(dst, TaggedLen, pieces)
	}
	s.placed(end, payload, uint32(payload))
	return nil
}

func (s *Stream) placeUntagged(start, end uint64, n int, pieces [][]byte) *Error {
	h := &s.header
	payload := n - UntaggedLen
	q := s.queues[h.QN]
	if q == nil {
		return s.fail(start, TypeUntagged, CodeInvalidQN, h, n)
	}
	slot, code := q.find(h.MSN)
	if code != 0 {
		return s.fail(start, TypeUntagged, code, h, n)
	}
	code, again := slot.check(h, end, uint32(payload))
	if code != 0 {
		return s.fail(start, TypeUntagged, code, h, n)
	}
	if again {
		s.stats.Duplicates++
		return nil
	}
	if payload > 0 {
		if slot.ranges > 0 {
			if !s.scatter(q.list(h.MSN), h.MO, uint32(payload), pieces) {
				return s.fail(start, TypeLocalCatastrophic, 0, h, n)
			}
		} else if dst, ok := s.localRange(&slot.buffer, h.MO, payload); ok {
			copyPieces(dst, UntaggedLen, pieces)
		} else {
			return s.fail(start, TypeLocalCatastrophic, 0, h, n)
		}
	}
	q.note(slot, h, end)
	s.placed(end, payload, h.MO+uint32(payload))
	return nil
}

// localRange resolves octets of a posted buffer. That they lie within the buffer was checked; false
// means that what was posted is no writable range of the domain: this host's fault, not the peer's.
func (s *Stream) localRange(b *RecvBuffer, mo uint32, n int) ([]byte, bool) {
	to := b.TO + uint64(mo)
	if to < b.TO {
		return nil, false
	}
	dst, verdict := s.table.Check(s.domain, s.id, b.STag, to, n, mem.LocalWrite)
	return dst, verdict == mem.CheckOK
}

// placed counts the segment in hand and, if it is a message's last, lets the message wait for
// Delivery.
func (s *Stream) placed(end uint64, payload int, messageLen uint32) {
	s.stats.Segments++
	s.stats.Octets += uint64(payload)
	if s.header.Last {
		s.whole(end, messageLen)
	}
}

// whole lets the message wait whose last segment is the one in hand; nil: it does already.
func (s *Stream) whole(end uint64, messageLen uint32) *pendingMessage {
	m := s.pending.insert(end)
	if m == nil { // a Tagged last segment placed twice: allowed, but delivered once (section 7.3)
		s.stats.Duplicates++
		return nil
	}
	m.header, m.len = s.header, messageLen
	return m
}

// copyPieces fills dst with the octets of pieces after the first skip, exactly.
func copyPieces(dst []byte, skip int, pieces [][]byte) {
	for len(pieces) > 0 && skip >= len(pieces[0]) {
		skip -= len(pieces[0])
		pieces = pieces[1:]
	}
	if len(pieces) > longMin && hasCopyLong {
		dst, pieces = copyPiece(dst, pieces[0][skip:]), pieces[1:]
		done, octets := copyLong(dst, pieces)
		dst, pieces, skip = dst[octets:], pieces[done:], 0
	}
	for _, p := range pieces {
		dst = copyPiece(dst, p[skip:])
		skip = 0
	}
	if len(dst) != 0 {
		panic("ddp: pieces hold less than the ULPDU")
	}
}

// longMin is after how many pieces more are worth copyLong: three markers make as many.
const longMin = 2

// copyPiece copies p and returns what follows it.
func copyPiece(dst, p []byte) []byte {
	if copyOctets(dst, p) != len(p) {
		panic("ddp: pieces hold more than the ULPDU")
	}
	return dst[len(p):]
}
