package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
)

// IslandsMax bounds the islands of a Receiver, as tcp.Config.RangesMax bounds TCP's ranges; a segment that would open
// one more is refused and counted.
const IslandsMax = 64

// An island is a run of received octets with a gap, or the passed stream, in front of it:
//
//	lo          passLo              passHi      hi
//	|  not       |  FPDUs that have  |  front of |
//	|  located   |  been passed      |  an FPDU  |
//
// Behind an FPDU that was passed the next one's start is known, so an island has at most one passed part; passLo ==
// passHi: it has none. The island whose lo is Receiver.next is in order; it has no passed part and holds the front of
// one FPDU. Islands are sorted and do not touch.
type island struct {
	lo, hi         uint64
	passLo, passHi uint64
}

func (s *island) passed() bool { return s.passLo < s.passHi }

// gap is a run of received octets that have not been passed, between passed parts of one island.
type gap struct {
	lo, hi        uint64
	known         bool // an FPDU begins at lo, or where a marker says
	located       bool // a marker says it
	land          bool // an FPDU that has been passed begins at hi
	inOrder       bool
	before, after island // the islands that meet here, as they were
}

// filling is a gap whose FPDUs Next passes as far as they are whole.
type filling struct {
	gap
	i        int    // its island
	from, at uint64 // the first FPDU of it that is known, and the next
	verified uint64 // FPDUs that end there or before have a good CRC
	offered  bool   // the segment in hand is part of it, so that there is a Verdict to find
}

// insert takes octets that the fast path cannot: beyond a gap, or in order but part of an FPDU that is not whole in
// them.
func (r *Receiver) insert(off uint64, b mem.Buf, data []byte) {
	r.stage = stageDone
	end := off + uint64(len(data))
	i := len(r.islands)
	for i > 0 && r.islands[i-1].lo >= off {
		i--
	}
	if off < r.next || i > 0 && r.islands[i-1].hi > off || i < len(r.islands) && r.islands[i].lo < end {
		panic("mpa: octets offered twice")
	}
	joinsBefore := i > 0 && r.islands[i-1].hi == off
	joinsAfter := i < len(r.islands) && r.islands[i].lo == end
	g := gap{lo: off, hi: end, inOrder: off == r.next}
	if joinsBefore {
		g.before = r.islands[i-1]
		g.lo = g.before.lo
		g.inOrder = g.lo == r.next
		if g.before.passed() {
			g.lo = g.before.passHi
			g.known = true
		}
	}
	if joinsAfter {
		g.meet(&r.islands[i])
	}
	if !joinsBefore && !joinsAfter && !g.inOrder && len(r.islands) >= IslandsMax {
		r.stats.RefusedIslands++
		r.verdict = Refused
		return
	}

	ooo := r.holdsOutOfOrder()
	r.offer(off, b, data)
	from := g.lo
	g.known = g.known || g.inOrder
	if !g.known {
		from, g.located = r.locate(g.lo, g.hi)
		g.known = g.located
	}
	verified, refused := r.survey(&g, from, ooo)
	if refused {
		r.withdraw()
		r.verdict = Refused
		return
	}
	i = r.join(i, off, end, joinsBefore, joinsAfter)
	r.fill = filling{gap: g, i: i, from: from, at: from, verified: verified, offered: true}
	r.stage = stageFill
}

// meet says that the island s begins where the gap ends.
func (g *gap) meet(s *island) {
	g.after = *s
	g.hi = s.hi
	if s.passed() {
		g.hi = s.passLo
		g.land = true
	}
}

// join makes the octets [off, end) part of the islands; i is the first island behind them. It returns the index of
// theirs.
func (r *Receiver) join(i int, off, end uint64, before, after bool) int {
	switch {
	case before && after:
		r.islands[i-1].hi = r.islands[i].hi
		r.islands = append(r.islands[:i], r.islands[i+1:]...)
		return i - 1
	case before:
		r.islands[i-1].hi = end
		return i - 1
	case after:
		r.islands[i].lo = off
		return i
	}
	r.islands = r.islands[:len(r.islands)+1]
	copy(r.islands[i+1:], r.islands[i:])
	r.islands[i] = island{lo: off, hi: end}
	return i
}

// reach is called when the passed stream has reached the first island.
func (r *Receiver) reach() {
	g := gap{lo: r.next, known: true, inOrder: true}
	g.meet(&r.islands[0])
	r.fill = filling{gap: g, from: g.lo, at: g.lo}
	r.stage = stageFill
}

// locate finds the first FPDU in [lo, hi) that a marker names (RFC 5044 section 6 rule 2). Without markers the
// octets wait: nothing is guessed. So they do while the first FPDU is waited for (ReceiverConfig.InOrder).
func (r *Receiver) locate(lo, hi uint64) (begin uint64, ok bool) {
	if !r.mode.Markers || r.inOrder {
		return lo, false
	}
	floor := lo // the FPDU begins at or behind it
	for m := nextMarker(lo); m+MarkerLen <= hi; m += MarkerSpacing {
		begin, ok := located(m, pointer(r.field(m, MarkerLen)))
		if ok && begin >= floor {
			// The marker is not validated before the FPDU's CRC is, so what cannot be is no error yet.
			f, st := r.scanHeld(begin, hi)
			if st == whole && f.end > m || st == partial && (f.end == 0 || f.end > m) {
				return begin, true
			}
		}
		floor = m + MarkerLen
	}
	return lo, false
}

// survey decides, before anything is passed, whether the offered octets are refused: for the bad CRC of an FPDU that
// lies wholly in them, or for want of a Buf. verified: FPDUs that end there or before have a good CRC.
func (r *Receiver) survey(g *gap, from uint64, ooo int) (verified uint64, refused bool) {
	if g.inOrder && !r.drop {
		return 0, false
	}
	at := from
	for g.known && at < r.cur.hi {
		f, st := r.scanHeld(at, g.hi)
		if st != whole {
			if r.drop && at >= r.cur.lo && r.mode.damaged(at, r.offeredFrom(at)) {
				r.stats.RefusedUnverified++
				return 0, true
			}
			break
		}
		if r.drop {
			if !r.goodHeld(&f) {
				if r.cur.within(&f) {
					r.stats.RefusedCRC++
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
		return 0, true
	}
	if ooo < r.oooMax {
		return verified, false
	}
	if i := r.find(r.cur.lo); at == from && (i > 0 && r.mergeable(i-1) || i+1 < len(r.holds) && r.mergeable(i)) {
		return verified, false // it costs no Buf
	}
	r.stats.RefusedBudget++
	return 0, true
}

// offeredFrom is the offered octets from at on.
func (r *Receiver) offeredFrom(at uint64) []byte { return r.held(&r.holds[r.find(at)], at, r.cur.hi) }

// holdsOutOfOrder counts the holds that are not in the in-order island.
func (r *Receiver) holdsOutOfOrder() int {
	if len(r.islands) == 0 || r.islands[0].lo != r.next {
		return len(r.holds)
	}
	return len(r.holds) - 1 - r.find(r.islands[0].hi-1)
}

// nextHeld passes the next FPDU of the gap that is whole. When there is none any more it brings the island up to date.
func (r *Receiver) nextHeld() *ULPDU {
	g := &r.fill
	for g.known && g.at < g.hi {
		f, st := r.scanHeld(g.at, g.hi)
		if st == oversize {
			break // an error, but not before it is in order
		}
		if st == partial {
			// RFC 5044 section 8: checked when a gap is closed. A first FPDU that only a marker named is not validated
			// and is no error yet.
			if g.land && (g.at > g.from || !g.located) {
				r.fail(ErrMarker, g.at, whatBoundary)
				r.cur = offered{}
				return nil
			}
			break
		}
		if !r.takeHeld(&f, f.end <= g.verified) {
			r.cur = offered{}
			return nil
		}
		g.at = f.end
		return &r.u
	}
	r.stage = stageDone
	r.filled(g.i, &g.gap, g.from, g.at)
	switch {
	case r.stopped:
		r.cur = offered{}
	case g.offered:
		r.verdict = r.settleOffer()
	}
	return nil
}

// filled brings island i up to date, whose gap g has been passed from the FPDU at from up to at.
func (r *Receiver) filled(i int, g *gap, from, at uint64) {
	if g.inOrder {
		r.fillInOrder(i, g, at)
		return
	}
	s := &r.islands[i]
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
		// Otherwise an oversize ULPDU_Length at passHi ends the stream, and what was passed behind it matters no more.
	}
	if s.passed() {
		r.release(s.passLo, s.passHi)
	}
}

// fillInOrder brings island i up to date, which was in order and whose FPDUs up to at, now next, have been passed.
func (r *Receiver) fillInOrder(i int, g *gap, at uint64) {
	if g.land && at == g.hi {
		r.next = g.after.passHi
	}
	s := &r.islands[i]
	if _, st := r.scanHeld(r.next, s.hi); st == oversize {
		r.fail(ErrMarker, r.next, whatLength) // DECISIONS 19
		return
	}
	r.release(0, r.next)
	if r.next == s.hi {
		r.islands = append(r.islands[:i], r.islands[i+1:]...)
		return
	}
	*s = island{lo: r.next, hi: s.hi}
}

// scanHeld looks at the held FPDU that begins at begin in an island's octets up to hi.
func (r *Receiver) scanHeld(begin, hi uint64) (f frame, st scanned) {
	head := r.mode.headOf(begin)
	if head+HeaderLen > hi {
		return f, partial
	}
	n := int(binary.BigEndian.Uint16(r.field(head, HeaderLen)))
	if n > MULPDUMax {
		return f, oversize
	}
	f = r.mode.frameOf(begin, n)
	if f.end > hi {
		return f, partial
	}
	return f, whole
}
