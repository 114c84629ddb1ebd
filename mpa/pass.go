package mpa

import "encoding/binary"

// take verifies the whole FPDU f, whose octets are b, and passes it. false: the Receiver has stopped.
func (r *Receiver) take(f *frame, b []byte, verified, direct bool, sink Sink) bool {
	if r.mode.CRC && !verified && !crcGood(b) {
		r.fail(ErrCRC, f.begin, whatCRC)
		return false
	}
	if r.mode.Markers && !markersAgree(f, b) {
		r.fail(ErrMarker, f.begin, whatMarker)
		return false
	}
	at := f.head + HeaderLen
	r.pieces = r.mode.cut(r.pieces[:0], at, f.n, b[at-f.begin:])
	return r.pass(f, direct, sink)
}

// cut appends the n ULPDU octets at stream offset at, which b begins with, to pieces and leaves markers out.
func (m Mode) cut(pieces [][]byte, at uint64, n int, b []byte) [][]byte {
	if n == 0 {
		return pieces
	}
	if !m.Markers {
		return append(pieces, b[:n])
	}
	room := int(nextMarker(at) - at)
	if room == 0 { // behind ULPDU_Length
		b = b[MarkerLen:]
		room = markerGap
	}
	for n > room {
		pieces = append(pieces, b[:room])
		n -= room
		b = b[room+MarkerLen:]
		room = markerGap
	}
	return append(pieces, b[:n])
}

// pass hands the FPDU whose ULPDU is in pieces to the Sink. false: the Sink's error has stopped the Receiver.
func (r *Receiver) pass(f *frame, direct bool, sink Sink) bool {
	inOrder := f.begin == r.next
	s := &r.stats
	s.FPDUs++
	if direct {
		s.Direct++
		s.BytesDirect += uint64(f.n)
	} else {
		s.Reassembled++
		s.BytesReassembled += uint64(f.n)
	}
	if !inOrder {
		s.OutOfOrder++
		s.BytesOutOfOrder += uint64(f.n)
	}
	// Field by field: a literal is built elsewhere and then copied in larger words than it was written in, and such a load
	// waits until the CPU is done with all before it, the CRC too. That is 20 to 30 ns a frame.
	u := &r.u
	u.Start, u.End, u.Len, u.Pieces = f.begin, f.end, f.n, r.pieces
	u.Direct, u.InOrder = direct, inOrder
	if err := sink.Place(u); err != nil {
		r.err = err
		r.Close()
		return false
	}
	if inOrder {
		r.next = f.end
	}
	return true
}

// takeHeld is take for an FPDU whose octets are held.
func (r *Receiver) takeHeld(f *frame, verified bool, sink Sink) bool {
	i := r.find(f.begin)
	h := &r.holds[i]
	if f.end <= h.end() {
		return r.take(f, r.held(h, f.begin, f.end), verified, r.cur.is(h), sink)
	}
	if r.mode.CRC && !verified && !r.crcGoodHeld(f, i) {
		r.fail(ErrCRC, f.begin, whatCRC)
		return false
	}
	if r.mode.Markers && !r.markersAgreeHeld(f) {
		r.fail(ErrMarker, f.begin, whatMarker)
		return false
	}
	r.cutHeld(f, i)
	return r.pass(f, false, sink)
}

// goodHeld verifies the CRC of the held FPDU f.
func (r *Receiver) goodHeld(f *frame) bool {
	i := r.find(f.begin)
	h := &r.holds[i]
	if f.end <= h.end() {
		return crcGood(r.held(h, f.begin, f.end))
	}
	return r.crcGoodHeld(f, i)
}

// crcGoodHeld is crcGood over several holds, the first of which is i.
func (r *Receiver) crcGoodHeld(f *frame, i int) bool {
	crc := uint32(0)
	last := f.end - CRCLen
	for at := f.begin; at < last; i++ {
		h := &r.holds[i]
		to := min(h.end(), last)
		crc = crcAdd(crc, r.held(h, at, to))
		at = to
	}
	return crc == binary.LittleEndian.Uint32(r.field(last, CRCLen))
}

// markersAgreeHeld is markersAgree over several holds.
func (r *Receiver) markersAgreeHeld(f *frame) bool {
	if f.head != f.begin && pointer(r.field(f.begin, MarkerLen)) != 0 {
		return false
	}
	for m := nextMarker(f.head); m < f.end; m += MarkerSpacing {
		if pointer(r.field(m, MarkerLen)) != m-f.head {
			return false
		}
	}
	return true
}

// cutHeld makes pieces of the ULPDU of f, which lies in several holds, the first of which is i.
func (r *Receiver) cutHeld(f *frame, i int) {
	r.pieces = r.pieces[:0]
	at := f.head + HeaderLen
	n := f.n
	for n > 0 {
		if r.mode.Markers && at%MarkerSpacing == 0 {
			at += MarkerLen
		}
		for r.holds[i].end() <= at {
			i++
		}
		to := min(at+uint64(n), r.holds[i].end())
		if r.mode.Markers {
			to = min(to, nextMarker(at))
		}
		r.pieces = append(r.pieces, r.held(&r.holds[i], at, to))
		n -= int(to - at)
		at = to
	}
}
