package mpa

import "encoding/binary"

// take verifies the whole FPDU f, whose octets are b, and passes it. false: the Receiver has
// stopped.
func (r *Receiver) take(f *frame, b []byte, verified, direct bool) bool {
	if r.mode.CRC && !verified && !crcGood(b) {
		r.fail(ErrCRC, f.begin, whatCRC)
		return false
	}
	if !r.mode.Markers {
		r.pieces = r.pieces[:0]
		if f.n > 0 {
			r.pieces = append(r.pieces, b[HeaderLen:HeaderLen+f.n])
		}
	} else if !r.cutMarked(*f, b) {
		r.fail(ErrMarker, f.begin, whatMarker)
		return false
	}
	return r.pass(f, direct)
}

// cutMarked makes pieces of the ULPDU of f, whose octets are b, and leaves the markers out. false:
// one of them does not name f as the FPDU that contains it, or a leading one is not zero.
func (r *Receiver) cutMarked(f frame, b []byte) bool {
	head := int(f.head - f.begin)
	if head != 0 && pointer(b) != 0 {
		return false
	}
	pieces := r.pieces[:0]
	at, left := head+HeaderLen, f.n
	for m := int(nextMarker(f.head) - f.begin); m < len(b); m += MarkerSpacing {
		if pointer(b[m:]) != uint64(m-head) {
			return false
		}
		if k := min(m-at, left); k > 0 {
			pieces = append(pieces, b[at:at+k])
			left -= k
		}
		at = m + MarkerLen
	}
	if left > 0 {
		pieces = append(pieces, b[at:at+left])
	}
	r.pieces = pieces
	return true
}

// pass makes u of the FPDU whose ULPDU is in pieces. True always: an FPDU that was verified is
// passed.
func (r *Receiver) pass(f *frame, direct bool) bool {
	inOrder := f.begin == r.next
	s := &r.stats
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
	// Field by field: a literal is built elsewhere and then copied in larger words than it was
	// written in, and such a load waits until the CPU is done with all before it, the CRC too. That
	// is 20 to 30 ns a frame.
	u := &r.u
	u.Start, u.End, u.Len, u.Pieces = f.begin, f.end, f.n, r.pieces
	u.Direct, u.InOrder = direct, inOrder
	if inOrder {
		r.next = f.end
	}
	return true
}

// takeHeld is take for an FPDU whose octets are held.
func (r *Receiver) takeHeld(f *frame, verified bool) bool {
	i := r.find(f.begin)
	h := &r.heldBufs[i]
	if f.end <= h.end() {
		return r.take(f, r.held(h, f.begin, f.end), verified, r.cur.is(h))
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
	return r.pass(f, false)
}

// goodHeld verifies the CRC of the held FPDU f.
func (r *Receiver) goodHeld(f *frame) bool {
	i := r.find(f.begin)
	h := &r.heldBufs[i]
	if f.end <= h.end() {
		return crcGood(r.held(h, f.begin, f.end))
	}
	return r.crcGoodHeld(f, i)
}

// crcGoodHeld is crcGood over several held Bufs, from i on.
func (r *Receiver) crcGoodHeld(f *frame, i int) bool {
	crc := uint32(0)
	last := f.end - CRCLen
	for at := f.begin; at < last; i++ {
		h := &r.heldBufs[i]
		to := min(h.end(), last)
		crc = crcAdd(crc, r.held(h, at, to))
		at = to
	}
	return crc == binary.LittleEndian.Uint32(r.field(last, CRCLen))
}

// markersAgreeHeld says whether the markers of f, which several held Bufs have, agree with it.
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

// cutHeld makes pieces of the ULPDU of f, which lies in several held Bufs, from i on.
func (r *Receiver) cutHeld(f *frame, i int) {
	r.pieces = r.pieces[:0]
	at := f.head + HeaderLen
	n := f.n
	for n > 0 {
		if r.mode.Markers && at%MarkerSpacing == 0 {
			at += MarkerLen
		}
		for r.heldBufs[i].end() <= at {
			i++
		}
		to := min(at+uint64(n), r.heldBufs[i].end())
		if r.mode.Markers {
			to = min(to, nextMarker(at))
		}
		r.pieces = append(r.pieces, r.held(&r.heldBufs[i], at, to))
		n -= int(to - at)
		at = to
	}
}
