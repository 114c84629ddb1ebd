package mpa

import "encoding/binary"

// direct passes the whole FPDUs at the front of data, which begins at next, and returns how many octets they take.
// refused: an FPDU has a bad CRC and is to be dropped; nothing was passed.
//
// It is take and pass (pass.go) of what most FPDUs are, in one piece: calls and a frame in memory cost half as much again.
func (r *Receiver) direct(data []byte, sink Sink) (used int, refused bool) {
	if r.drop && r.doubtful(data) {
		return 0, true
	}
	verify := r.mode.CRC && !r.drop
	u := &r.u
	u.Direct, u.InOrder = true, true
	for used < len(data) {
		f, st := r.mode.scan(r.next, data[used:])
		if st != whole {
			if st == oversize {
				r.fail(ErrMarker, r.next, whatLength) // DECISIONS 19
			}
			break
		}
		b := data[used : used+int(f.end-f.begin)]
		if verify && !crcGood(b) {
			r.fail(ErrCRC, f.begin, whatCRC)
			break
		}
		if r.cutAt != 0 {
			r.cleared(f)
		}
		if r.mode.Markers {
			if !r.cutMarked(f, b) {
				r.fail(ErrMarker, f.begin, whatMarker)
				break
			}
		} else if r.pieces = r.pieces[:0]; f.n > 0 {
			r.pieces = append(r.pieces, b[HeaderLen:HeaderLen+f.n])
		}
		r.stats.Direct++
		r.stats.BytesDirect += uint64(f.n)
		u.Start, u.End, u.Len, u.Pieces = f.begin, f.end, f.n, r.pieces
		if err := sink.Place(u); err != nil {
			r.err = err
			r.Close()
			break
		}
		r.next = f.end
		used += len(b)
	}
	return used, false
}

// doubtful says whether data, which begins at next, is to be refused under DropBadCRC: a whole FPDU in it has a bad CRC,
// or it ends inside an FPDU although the peer's segments were whole so far, and it is here for the first time. Where the end
// of the segment hides ULPDU_Length there is no doubt: the FPDU before it was verified, so it does end inside one.
func (r *Receiver) doubtful(data []byte) bool {
	at := r.next
	for len(data) > 0 {
		f, st := r.mode.scan(at, data)
		if st != whole {
			break
		}
		size := int(f.end - f.begin)
		if !crcGood(data[:size]) {
			r.stats.RefusedCRC++
			return true
		}
		at = f.end
		data = data[size:]
	}
	if len(data) == 0 {
		return false
	}
	head := int(r.mode.headOf(at) - at)
	if r.aligned && r.suspect != r.next+1 && len(data) >= head+HeaderLen {
		r.suspect = r.next + 1
		r.cutAt, r.cutLen = at+1, int(binary.BigEndian.Uint16(data[head:]))
		r.stats.RefusedUnverified++
		return true
	}
	r.aligned = false // it came again as it was: this peer, or the path, does not keep frames whole
	return false
}

// cleared takes note that f was whole and verified. When a segment was refused for ending inside f, and its length is what
// stood there, that segment was sound: frames do not stay whole, although this one did when it came again.
func (r *Receiver) cleared(f frame) {
	if r.cutAt == f.begin+1 {
		r.cutAt = 0
		r.aligned = r.aligned && f.n != r.cutLen
	}
}

// scanned says what stands at a place where an FPDU begins.
type scanned uint8

const (
	partial  scanned = iota // not all of it is there
	whole                   // all of it is there
	oversize                // ULPDU_Length is above MULPDUMax
)

// scan looks at the FPDU that begins at begin, where b's octets stand.
func (m Mode) scan(begin uint64, b []byte) (f frame, st scanned) {
	f.begin, f.head = begin, m.headOf(begin)
	skip := int(f.head - begin)
	if len(b) < skip+HeaderLen {
		return f, partial
	}
	f.n = int(binary.BigEndian.Uint16(b[skip:]))
	if f.n > MULPDUMax {
		return f, oversize
	}
	f.end = m.endOf(f.head, f.n)
	if f.end-begin > uint64(len(b)) {
		return f, partial
	}
	return f, whole
}
