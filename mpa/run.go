package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
)

// RunsMax bounds the out-of-order runs of a Receiver, as tcp.Config.RangesMax bounds TCP's ranges;
// a segment that would open one more is refused and counted.
const RunsMax = 64

// A run is octets that were received, without a gap among them; before them is a gap, or the passed
// stream:
//
//	lo          passLo              passHi      hi
//	|  not       |  FPDUs that have  |  front of |
//	|  located   |  been passed      |  an FPDU  |
//
// After an FPDU that was passed the next one's start is known, so a run has at most one passed
// part; passLo == passHi: it has none. The run whose lo is Receiver.next is in order; it has no
// passed part and holds the front of one FPDU. Runs are sorted and do not touch.
type run struct {
	lo, hi         uint64
	passLo, passHi uint64
	// Until an FPDU of it is located: the markers before sought name none, except that the first one
	// may once the run begins earlier. So each marker is looked at once or twice, and not again for
	// each segment that comes. 0: none has been looked at.
	sought uint64
}

func (s *run) passed() bool { return s.passLo < s.passHi }

// gap is a run of received octets that have not been passed, between passed parts of one run.
type gap struct {
	lo, hi        uint64
	known         bool // an FPDU begins at lo, or where a marker says
	located       bool // a marker says it
	land          bool // an FPDU that has been passed begins at hi
	inOrder       bool
	before, after run    // the runs that meet here, as they were
	sought        uint64 // of the run that they become
}

// filling is a gap whose FPDUs Next passes as far as they are whole.
type filling struct {
	gap
	i        int    // its run
	from, at uint64 // the first FPDU of it that is known, and the next
	verified uint64 // FPDUs that end there or before have a good CRC
	offered  bool   // the segment in hand is part of it, so that there is a Verdict to find
}

// insert takes octets that the fast path cannot: beyond a gap, or in order but part of an FPDU that
// is not whole in them.
func (r *Receiver) insert(off uint64, b mem.Buf, data []byte) {
	r.stage = stageDone
	if r.pool.Lent(b) {
		b, data = r.copyLent(data)
	}
	end := off + uint64(len(data))
	i := len(r.runs)
	for i > 0 && r.runs[i-1].lo >= off {
		i--
	}
	if off < r.next || i > 0 && r.runs[i-1].hi > off || i < len(r.runs) && r.runs[i].lo < end {
		panic("mpa: octets offered twice")
	}
	joinsBefore := i > 0 && r.runs[i-1].hi == off
	joinsAfter := i < len(r.runs) && r.runs[i].lo == end
	g := gap{lo: off, hi: end, inOrder: off == r.next}
	if joinsBefore {
		g.before = r.runs[i-1]
		g.lo = g.before.lo
		g.inOrder = g.lo == r.next
		if g.before.passed() {
			g.lo = g.before.passHi
			g.known = true
		}
	}
	if joinsAfter {
		g.meet(&r.runs[i])
	}
	if !joinsBefore && !joinsAfter && !g.inOrder && len(r.runs) >= RunsMax {
		r.stats.RefusedRuns++
		r.refusals().OutOfOrderRuns++
		r.verdict = Refused
		return
	}

	ooo := r.heldOutOfOrder()
	r.offer(off, b, data)
	from := g.lo
	g.known = g.known || g.inOrder
	if !g.known {
		from, g.located = r.locate(&g)
		g.known = g.located
	}
	verified, refused := r.scanGap(&g, from, ooo)
	if refused {
		r.withdraw()
		r.verdict = Refused
		return
	}
	i = r.addToRuns(i, off, end, joinsBefore, joinsAfter)
	r.runs[i].sought = g.sought
	r.fill = filling{gap: g, i: i, from: from, at: from, verified: verified, offered: true}
	r.stage = stageFill
}

// Joins is how many held octets that no known FPDU has meet n octets at off, which lie beyond a
// gap: Input of these may have all FPDUs in them passed at once. Of an FPDU that is not whole it
// is known that it is one.
func (r *Receiver) Joins(off uint64, n int) (octets int) {
	for i := range r.runs {
		s := &r.runs[i]
		switch before := s.hi == off; {
		case !before && s.lo != off+uint64(n), before && (s.passed() || s.lo == r.next):
		case s.passed():
			octets += int(s.passLo - s.lo)
		case s.sought > s.lo && s.sought+MarkerLen <= s.hi: // the marker at sought locates one
			octets += int(s.sought - s.lo)
		default:
			octets += int(s.hi - s.lo)
		}
	}
	return octets
}

// meet says that the run s begins where the gap ends.
func (g *gap) meet(s *run) {
	g.after = *s
	g.hi = s.hi
	if s.passed() {
		g.hi = s.passLo
		g.land = true
	}
}

// addToRuns makes the octets [off, end) part of the runs; i is the first run after them. It returns
// the index of theirs.
func (r *Receiver) addToRuns(i int, off, end uint64, before, after bool) int {
	switch {
	case before && after:
		r.runs[i-1].hi = r.runs[i].hi
		r.runs = append(r.runs[:i], r.runs[i+1:]...)
		return i - 1
	case before:
		r.runs[i-1].hi = end
		return i - 1
	case after:
		r.runs[i].lo = off
		return i
	}
	r.runs = r.runs[:len(r.runs)+1]
	copy(r.runs[i+1:], r.runs[i:])
	r.runs[i] = run{lo: off, hi: end}
	return i
}

// reach is called when the passed stream has reached the first run.
func (r *Receiver) reach() {
	g := gap{lo: r.next, known: true, inOrder: true}
	g.meet(&r.runs[0])
	r.fill = filling{gap: g, from: g.lo, at: g.lo}
	r.stage = stageFill
}

// locate finds the first FPDU in the gap that a marker names (RFC 5044 section 6 rule 2). Without
// markers the octets wait: nothing is guessed. So they do while the first FPDU is waited for
// (ReceiverConfig.InOrder).
func (r *Receiver) locate(g *gap) (begin uint64, ok bool) {
	if !r.mode.Markers || r.inOrder {
		return g.lo, false
	}
	first := nextMarker(g.after.lo)
	floor := g.lo // the FPDU begins at or after it
	m := nextMarker(g.lo)
	for {
		to := m
		if g.before.sought > m {
			to = g.before.sought
		}
		if m > first && g.after.sought > to {
			to = g.after.sought
		}
		if to > m {
			m, floor = to, to-markerGap
		}
		if g.sought = m; m+MarkerLen > g.hi {
			return g.lo, false
		}
		r.stats.MarkersSought++
		begin, ok := located(m, pointer(r.field(m, MarkerLen)))
		if ok && begin >= floor {
			// The marker is not validated before the FPDU's CRC is, so what cannot be is no error
			// yet.
			f, st := r.scanHeld(begin, g.hi)
			if st == whole && f.end > m || st == partial && (f.end == 0 || f.end > m) {
				return begin, true
			}
		}
		floor = m + MarkerLen
		m += MarkerSpacing
	}
}

// scanGap decides, before anything is passed, whether the offered octets are refused: for the bad
// CRC of an FPDU that lies wholly in them, or for want of a Buf. verified: FPDUs that end there or
// before have a good CRC.
func (r *Receiver) scanGap(g *gap, from uint64, ooo int) (verified uint64, refused bool) {
	if g.inOrder && !r.drop {
		return 0, false
	}
	at := from
	for g.known && at < r.cur.hi {
		f, st := r.scanHeld(at, g.hi)
		if st != whole {
			if r.drop && at >= r.cur.lo && r.mode.damaged(at, r.offeredFrom(at)) {
				r.stats.RefusedUnverified++
				r.refusals().Unverified++
				return 0, true
			}
			break
		}
		if r.drop {
			if !r.goodHeld(&f) {
				if r.cur.within(&f) {
					r.stats.RefusedCRC++
					r.refusals().CRC++
					return 0, true
				}
				break // octets of it have been taken: an error, which fill finds again
			}
			verified = f.end
		}
		at = f.end
	}
	all := g.known && from <= r.cur.lo && at >= r.cur.hi // all of it will be passed
	if g.inOrder || all {
		return verified, false
	}
	if r.drop {
		r.stats.RefusedUnverified++
		r.refusals().Unverified++
		return 0, true
	}
	if ooo < r.oooMax {
		return verified, false
	}
	if i := r.find(r.cur.lo); at == from && (i > 0 && r.mergeable(i-1) || i+1 < len(r.heldBufs) &&
		r.mergeable(i)) {
		return verified, false // it costs no Buf
	}
	r.stats.RefusedBudget++
	r.refusals().Budget++
	return 0, true
}

// offeredFrom is the offered octets from at on.
func (r *Receiver) offeredFrom(at uint64) []byte {
	return r.held(&r.heldBufs[r.find(at)], at, r.cur.hi)
}

// heldOutOfOrder counts the held Bufs that are not in the in-order run.
func (r *Receiver) heldOutOfOrder() int {
	if len(r.runs) == 0 || r.runs[0].lo != r.next {
		return len(r.heldBufs)
	}
	return len(r.heldBufs) - 1 - r.find(r.runs[0].hi-1)
}

// nextHeld passes the next FPDU of the gap that is whole. When there is none any more it brings the
// run up to date.
func (r *Receiver) nextHeld() *ULPDU {
	g := &r.fill
	if g.known && g.at < g.hi {
		switch f, st := r.scanHeld(g.at, g.hi); {
		case st == oversize: // an error, but not before it is in order
		case st == whole:
			if !r.takeHeld(&f, f.end <= g.verified) {
				r.cur = offered{}
				return nil
			}
			g.at = f.end
			return &r.u
		case g.land && (g.at > g.from || !g.located):
			// RFC 5044 section 8: checked when a gap is closed. A first FPDU that only a marker
			// named is not validated and is no error yet.
			r.fail(ErrMarker, g.at, whatBoundary)
			r.cur = offered{}
			return nil
		}
	}
	r.stage = stageDone
	r.filled(g.i, &g.gap, g.from, g.at)
	switch {
	case r.stopped:
		r.cur = offered{}
	case g.offered:
		r.verdict = r.commitOffer()
	}
	return nil
}

// filled brings run i up to date, whose gap g has been passed from the FPDU at from up to at.
func (r *Receiver) filled(i int, g *gap, from, at uint64) {
	if g.inOrder {
		r.fillInOrder(i, g, at)
		return
	}
	s := &r.runs[i]
	s.passLo, s.passHi = g.before.passLo, g.before.passHi
	if at > from {
		if !s.passed() {
			s.passLo = from
		}
		s.passHi = at
	}
	if g.land {
		switch {
		case !s.passed():
			s.passLo, s.passHi = g.after.passLo, g.after.passHi
		case s.passHi == g.hi:
			s.passHi = g.after.passHi
		}
		// Otherwise an oversize ULPDU_Length at passHi ends the stream, and what was passed after
		// it matters no more.
	}
	if s.passed() {
		r.release(s.passLo, s.passHi)
	}
}

// fillInOrder brings run i up to date, which was in order and whose FPDUs up to at, now next, have
// been passed.
func (r *Receiver) fillInOrder(i int, g *gap, at uint64) {
	if g.land && at == g.hi {
		r.next = g.after.passHi
	}
	s := &r.runs[i]
	if _, st := r.scanHeld(r.next, s.hi); st == oversize {
		r.fail(ErrMarker, r.next, whatLength) // DECISIONS 19
		return
	}
	r.release(0, r.next)
	if r.next == s.hi {
		r.runs = append(r.runs[:i], r.runs[i+1:]...)
		return
	}
	*s = run{lo: r.next, hi: s.hi}
}

// scanHeld looks at the held FPDU that begins at begin in a run's octets up to hi.
func (r *Receiver) scanHeld(begin, hi uint64) (f frame, st scanned) {
	head := r.mode.headOf(begin)
	if head+HeaderLen > hi {
		return f, partial
	}
	n := int(binary.BigEndian.Uint16(r.field(head, HeaderLen)))
	if n > mulpduMax {
		return f, oversize
	}
	f = r.mode.frameOf(begin, n)
	if f.end > hi {
		return f, partial
	}
	return f, whole
}
