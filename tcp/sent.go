package tcp

// sentRing holds one record per pushed segment, in stream order, from Push until Release:
//
//	        rel          una            nxt         end
//	┌────────┬────────────┬──────────────┬───────────┐
//	│  free  │ acked, not │ sent, not    │ never     │ free
//	│        │ released   │ acknowledged │ sent      │
//
// The four are free-running counts; a record's place is its count masked. Invariants: rel <= una <=
// nxt <= end <= rel+len(recs); records from una on are contiguous in the stream and not empty;
// sacked and lost are the octets of records in [una, nxt) with that flag, sackedRecs and resent the
// number of records with recSacked and recResent; no record is both sacked and lost.
//
// In flight is what is neither sacked nor lost. RACK wants it by the time it was sent: first
// transmissions are so by their place, those that were sent again are a list through the records,
// in the order of their latest transmission.
type sentRing struct {
	recs               []record // a power of two; none while the ring is empty
	run                uint32   // where recs lie in Memory
	mask               uint32
	rel, una, nxt, end uint32

	sacked, lost       int // octets
	sackedRecs, resent int // records

	resentFirst, resentLast uint32 // of the list, when resent > 0
	unjudged                uint32 // no first transmission before this is in flight
}

// record is one segment of ours, or the last FIN. 40 octets.
type record struct {
	at     uint64 // stream offset of the first octet
	sentAt int64  // of the latest transmission
	len    int32  // payload octets
	off    int32  // of the first octet within the handle's
	handle Handle
	flags  recordFlags
	tries  uint8  // transmissions, saturating
	prev   uint32 // of the list of what was sent again
	next   uint32 // the same; of a SACKed record, how many from it on are known to be SACKed
}

type recordFlags uint16

const (
	recSacked recordFlags = 1 << iota // the peer holds it
	recLost                           // to be sent again, not in flight
	recResent                         // sent again after it was lost, and in flight
	recEver                           // was ever retransmitted: Karn's rule
	recPSH                            // a unit ends in it
	recFIN
	recLast   // releases the handle
	recPrefix // only its first octets were sent again: no room to split it
	recProbe  // larger than EMSS when it was pushed, to see whether it arrives
)

// splitReserve slots are kept from Push for the FIN and for records that must be cut.
const splitReserve = 4

func (r *record) seqLen() int {
	if r.flags&recFIN != 0 {
		return int(r.len) + 1
	}
	return int(r.len)
}

func (r *record) endAt() uint64 { return r.at + uint64(r.seqLen()) }

// begin makes s an empty ring over recs. It sets field by field: every request and answer comes
// this way, and a composite literal would be made on the stack first.
func (s *sentRing) begin(recs []record, run uint32) {
	s.recs, s.run, s.mask = recs, run, uint32(len(recs)-1)
	s.rel, s.una, s.nxt, s.end, s.unjudged = 0, 0, 0, 0, 0
	s.sacked, s.lost, s.sackedRecs, s.resent = 0, 0, 0, 0
}

func (s *sentRing) rec(i uint32) *record { return &s.recs[i&s.mask] }

func (s *sentRing) free() int { return len(s.recs) - int(s.end-s.rel) }

// splittable says that a slot is there to cut a record with, besides the one that the FIN may need.
func (s *sentRing) splittable() bool { return s.free() > 1 }

// unsent says that a record waits for its first transmission.
func (s *sentRing) unsent() bool { return s.nxt != s.end }

// append adds a record at the end. The caller has seen to it that one is free.
func (s *sentRing) append(at uint64, h Handle, n int, flags recordFlags) {
	*s.rec(s.end) = record{at: at, len: int32(n), handle: h, flags: flags | recLast}
	s.end++
}

// find is the first record in [una, nxt) that ends after offset at, or nxt.
func (s *sentRing) find(at uint64) uint32 {
	lo, n := s.una, s.nxt-s.una
	for n > 0 {
		half := n / 2
		if s.rec(lo+half).endAt() <= at {
			lo += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	return lo
}

// split cuts record i after its first n octets and returns where that part is then; the rest
// follows it. It needs a free slot, and moves the records before i down by one, or those after it
// up, whichever are fewer. What is cut is mostly near either end: what is sent again first, or
// next.
func (s *sentRing) split(i uint32, n int) uint32 {
	if before := i - s.rel; before < s.end-i-1 {
		s.moveDown(i)
		i--
	} else {
		s.moveUp(i)
	}
	head, tail := s.rec(i), s.rec(i+1)
	*tail = *head
	head.len = int32(n)
	// PSH stands on both: it is not known in which a unit ends, and the window may end here
	head.flags &^= recLast | recFIN
	tail.at += uint64(n)
	tail.off += int32(n)
	tail.len -= int32(n)
	switch {
	case head.flags&recSacked != 0:
		s.sackedRecs++
	case head.flags&recResent != 0:
		s.linkAfter(i, i+1)
	}
	return i
}

// moveDown makes room after record i, which becomes i-1, by moving all up to it.
func (s *sentRing) moveDown(i uint32) {
	for j := s.rel - 1; j != i; j++ {
		s.move(j+1, j)
	}
	for _, at := range [...]*uint32{&s.una, &s.nxt, &s.unjudged} {
		if int32(*at-i) <= 0 {
			*at--
		}
	}
	s.rel--
}

// moveUp makes room after record i by moving all after it.
func (s *sentRing) moveUp(i uint32) {
	for j := s.end; j != i+1; j-- {
		s.move(j-1, j)
	}
	s.end++
	if i-s.rel < s.nxt-s.rel {
		s.nxt++
	}
}

// move moves a record to the next slot in either direction.
func (s *sentRing) move(from, to uint32) {
	*s.rec(to) = *s.rec(from)
	if s.rec(to).flags&recResent != 0 {
		s.relink(from, to)
	}
}

// markSacked, markLost and markResent move record i of [una, nxt) between the states that the
// counts are kept of.
func (s *sentRing) markSacked(i uint32) {
	s.unmark(i)
	r := s.rec(i)
	r.flags |= recSacked
	r.next = 1
	s.sacked += r.seqLen()
	s.sackedRecs++
}

// passRun is the place after the SACKed records that begin at i and are known to belong together.
// The record at first, with which their run begins (it may be i), remembers that place; and i
// remembers how far the run after its own reaches. So paths are compressed as in a union-find (R.
// E. Tarjan, "Efficiency of a good but not linear set union algorithm", 1975), and a walk over what
// is SACKed costs O(log n) amortized. A length never says too much: SACKed records lose their flag
// all at once, and split only adds one.
func (s *sentRing) passRun(first, i uint32) uint32 {
	r := s.rec(i)
	if after := i + r.next; after-s.una < s.nxt-s.una && s.rec(after).flags&recSacked != 0 {
		r.next += s.rec(after).next
	}
	to := i + r.next
	s.rec(first).next = to - first
	return to
}

func (s *sentRing) markLost(i uint32) {
	s.unmark(i)
	r := s.rec(i)
	r.flags |= recLost
	s.lost += r.seqLen()
}

func (s *sentRing) markResent(i uint32) {
	s.unmark(i)
	s.rec(i).flags |= recResent | recEver
	s.linkAfter(s.resentLast, i)
}

// found takes back that records were lost: all of [una, nxt) that are marked so are in flight since
// they were last sent. steps is how many records it looked at: those of [una, nxt), and those that
// were ever sent again O(log n) times each, whatever the order of sending is, which a peer chooses.
//
// Those records are sorted by bottom-up merging (D. E. Knuth, "The Art of Computer Programming",
// section 5.2.4): bins[k] is empty or a chain of 2^k.
func (s *sentRing) found() (steps int) {
	var bins [32]chain
	for i := s.una; i != s.nxt; i++ {
		steps++
		if s.rec(i).flags&recLost == 0 {
			continue
		}
		s.unmark(i)
		if s.rec(i).flags&recEver == 0 {
			continue // unjudged has passed it: the caller sets that back
		}
		s.rec(i).flags |= recResent
		c, k := chain{first: i, n: 1}, 0
		for ; bins[k].n > 0; k++ {
			c = s.merge(bins[k], c)
			bins[k] = chain{}
			steps += c.n
		}
		bins[k] = c
	}
	var back chain
	for k := range bins {
		if bins[k].n > 0 {
			back = s.merge(bins[k], back)
			steps += back.n
		}
	}
	if back.n == 0 {
		return steps
	}
	all := s.merge(chain{first: s.resentFirst, n: s.resent}, back)
	s.resent, s.resentFirst, s.resentLast = all.n, all.first, all.first
	for range all.n - 1 {
		next := s.rec(s.resentLast).next
		s.rec(next).prev = s.resentLast
		s.resentLast = next
	}
	return steps + 2*all.n
}

// chain is n records in the order of their latest transmission, through next.
type chain struct {
	first uint32
	n     int
}

// merge makes one chain of two; of records sent at the same time those of a come first.
func (s *sentRing) merge(a, b chain) chain {
	var all chain
	var last uint32
	for a.n+b.n > 0 {
		from := &a
		if a.n == 0 || b.n > 0 && s.rec(b.first).sentAt < s.rec(a.first).sentAt {
			from = &b
		}
		i := from.first
		from.first = s.rec(i).next
		from.n--
		if all.n == 0 {
			all.first = i
		} else {
			s.rec(last).next = i
		}
		last = i
		all.n++
	}
	return all
}

func (s *sentRing) unmark(i uint32) {
	r := s.rec(i)
	switch {
	case r.flags&recSacked != 0:
		s.sacked -= r.seqLen()
		s.sackedRecs--
	case r.flags&recLost != 0:
		s.lost -= r.seqLen()
	case r.flags&recResent != 0:
		s.unlink(i)
	}
	r.flags &^= recSacked | recLost | recResent
}

// linkAfter puts record i after record at in the list, or makes it the only one.
func (s *sentRing) linkAfter(at, i uint32) {
	r := s.rec(i)
	s.resent++
	switch {
	case s.resent == 1:
		s.resentFirst, s.resentLast = i, i
		return
	case at == s.resentLast:
		s.resentLast = i
	default:
		r.next = s.rec(at).next
		s.rec(r.next).prev = i
	}
	r.prev = at
	s.rec(at).next = i
}

func (s *sentRing) unlink(i uint32) {
	r := s.rec(i)
	s.resent--
	if i == s.resentFirst {
		s.resentFirst = r.next
	} else {
		s.rec(r.prev).next = r.next
	}
	if i == s.resentLast {
		s.resentLast = r.prev
	} else {
		s.rec(r.next).prev = r.prev
	}
}

// relink tells the list that the record at from has moved to to.
func (s *sentRing) relink(from, to uint32) {
	r := s.rec(to)
	if s.resentFirst == from {
		s.resentFirst = to
	} else {
		s.rec(r.prev).next = to
	}
	if s.resentLast == from {
		s.resentLast = to
	} else {
		s.rec(r.next).prev = to
	}
}

// oldestUnjudged is the first transmission sent longest ago that is in flight, or nxt. A
// caller that takes it out of flight calls again: each record is passed once.
func (s *sentRing) oldestUnjudged() uint32 {
	if int32(s.una-s.unjudged) > 0 {
		s.unjudged = s.una
	}
	for s.unjudged != s.nxt && s.rec(s.unjudged).flags&(recSacked|recLost|recResent) != 0 {
		s.unjudged++
	}
	return s.unjudged
}

// trim takes the first n octets, which are acknowledged, off record r.
func (s *sentRing) trim(r *record, n int) {
	r.at += uint64(n)
	r.off += int32(n)
	r.len -= int32(n)
	switch {
	case r.flags&recSacked != 0:
		s.sacked -= n
	case r.flags&recLost != 0:
		s.lost -= n
	}
}

// popAcked gives the oldest record in flight to Release.
func (s *sentRing) popAcked() {
	if s.rec(s.una).flags&(recSacked|recLost|recResent) != 0 {
		s.unmark(s.una)
	}
	s.una++
}

// release is the next handle that is wholly acknowledged.
func (s *sentRing) release() (Handle, bool) {
	for s.rel != s.una {
		r := s.rec(s.rel)
		s.rel++
		if r.flags&recLast != 0 && r.handle != NoHandle {
			return r.handle, true
		}
	}
	return NoHandle, false
}

// abandon lets Release return all that is left.
func (s *sentRing) abandon() {
	s.una, s.nxt = s.end, s.end
	s.sacked, s.lost, s.sackedRecs, s.resent = 0, 0, 0, 0
}
