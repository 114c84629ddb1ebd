package mpa

import "encoding/binary"

// nextDirect passes the FPDU at the front of rest, if it is whole. Otherwise the stage is another
// one.
//
// It is take and pass (pass.go) of what most FPDUs are, in one piece: calls and a frame in memory
// cost half as much again.
func (r *Receiver) nextDirect() *ULPDU {
	data := r.rest
	if len(data) == 0 {
		r.directDone()
		return nil
	}
	f, st := r.mode.scan(r.next, data)
	if st != whole {
		if st == oversize {
			r.fail(ErrMarker, r.next, whatLength) // DECISIONS 19
		} else {
			r.insert(r.next, r.restBuf, data)
		}
		return nil
	}
	b := data[:f.end-f.begin]
	if r.mode.CRC && !r.drop && !crcGood(b) {
		r.fail(ErrCRC, f.begin, whatCRC)
		return nil
	}
	if r.mode.Markers {
		if !r.cutMarked(f, b) {
			r.fail(ErrMarker, f.begin, whatMarker)
			return nil
		}
	} else if r.pieces = r.pieces[:0]; f.n > 0 {
		r.pieces = append(r.pieces, b[HeaderLen:HeaderLen+f.n])
	}
	r.stats.Direct++
	r.stats.BytesDirect += uint64(f.n)
	u := &r.u
	u.Direct, u.InOrder = true, true
	u.Start, u.End, u.Len, u.Pieces = f.begin, f.end, f.n, r.pieces
	r.next = f.end
	if r.rest = data[len(b):]; len(r.rest)|len(r.runs) == 0 {
		r.stage = stageDone
	}
	return u
}

// directDone goes on with the first run, if the passed stream has reached it.
func (r *Receiver) directDone() {
	r.stage = stageDone
	if len(r.runs) > 0 && r.runs[0].lo == r.next {
		r.reach()
	}
}

// doubtful says whether data, which begins at next, is to be refused under DropBadCRC: a whole FPDU
// in it has a bad CRC, or it ends inside an FPDU that was damaged for certain, or may have been
// (doubt). Where less remains than the shortest FPDU has there is no doubt: the FPDU before it was
// verified, so the segment does end inside one, whatever ULPDU_Length says. Damage does not make a
// segment shorter.
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
			r.refusals().CRC++
			return true
		}
		if r.cutAt != 0 {
			r.cleared(f)
		}
		at = f.end
		data = data[size:]
	}
	if len(data) == 0 {
		return false
	}
	head := int(r.mode.headOf(at) - at)
	shortest := int(r.mode.frameOf(at, r.ulpduMin).end - at)
	if r.mode.damaged(at, data) || r.aligned && len(data) >= shortest &&
		r.doubt(at, int(binary.BigEndian.Uint16(data[head:]))) {
		r.stats.RefusedUnverified++
		r.refusals().Unverified++
		return true
	}
	r.aligned = false // this peer, or the path, does not keep frames whole
	return false
}

// doubtsMax is how many segments that begin at one octet, each as the peer sent it again, are
// refused in a row for ending inside an FPDU. After so many the path is known to cut, at another
// octet each time.
const doubtsMax = 2

// doubt says whether to refuse a segment that begins at next and ends inside the FPDU that begins
// at at and has n as its ULPDU_Length. All were whole so far, so n may be damaged; it is not when
// the peer sends the segment again and n stands there again. That the network copies the segment
// does not prove anything: a copy has the timestamp that it had.
func (r *Receiver) doubt(at uint64, n int) bool {
	again := r.suspect == r.next+1
	if again && r.stamped && int32(r.stamp-r.cutStamp) <= 0 {
		return true
	}
	if !again {
		r.doubts = 0
	}
	same := again && r.cutAt == at+1 && r.cutLen == n
	r.suspect, r.cutAt, r.cutLen, r.cutStamp = r.next+1, at+1, n, r.stamp
	r.doubts++
	return !same && r.doubts <= doubtsMax
}

// cleared takes note that f was whole and verified. When a segment was refused for ending inside f,
// and its length is what stood there, that segment was sound: frames do not stay whole, although
// this one did when it came again.
func (r *Receiver) cleared(f frame) {
	if r.cutAt == f.begin+1 {
		r.cutAt = 0
		r.aligned = r.aligned && f.n != r.cutLen
	}
}

// damaged says whether b, the front of an FPDU that begins at begin, must have been damaged,
// although its CRC is still to come: no FPDU has that ULPDU_Length, or a marker in it does not name
// it as the FPDU that contains it.
func (m Mode) damaged(begin uint64, b []byte) bool {
	head := m.headOf(begin)
	if head != begin && len(b) >= MarkerLen && pointer(b) != 0 {
		return true
	}
	if at := int(head - begin); len(b) >= at+HeaderLen &&
		int(binary.BigEndian.Uint16(b[at:])) > mulpduMax {
		return true
	}
	if !m.Markers {
		return false
	}
	for at := nextMarker(head); at+MarkerLen <= begin+uint64(len(b)); at += MarkerSpacing {
		if pointer(b[at-begin:]) != at-head {
			return true
		}
	}
	return false
}

// scanned says what stands at a place where an FPDU begins.
type scanned uint8

const (
	partial  scanned = iota // not all of it is there
	whole                   // all of it is there
	oversize                // ULPDU_Length is above mulpduMax
)

// scan looks at the FPDU that begins at begin, where b's octets stand.
func (m Mode) scan(begin uint64, b []byte) (f frame, st scanned) {
	f.begin, f.head = begin, m.headOf(begin)
	skip := int(f.head - begin)
	if len(b) < skip+HeaderLen {
		return f, partial
	}
	f.n = int(binary.BigEndian.Uint16(b[skip:]))
	if f.n > mulpduMax {
		return f, oversize
	}
	f.end = m.endOf(f.head, f.n)
	if f.end-begin > uint64(len(b)) {
		return f, partial
	}
	return f, whole
}
