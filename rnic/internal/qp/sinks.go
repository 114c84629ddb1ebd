package qp

import (
	"cmp"

	"github.com/rnicd/rnicd/ddp"
)

// sinks finds the Read that a segment of a Read Response belongs to: places in
// requester.outstanding, by STag and offset of the sink, Reads of the same sink in the order of
// posting. A segment may belong to any of them, as segments come in any order, and the peer may
// send one for another Read in each FPDU.
//
// A look takes O(log ORD) steps, and one more for each Read whose sink begins at or before the
// segment and ends before it. Sinks that do not overlap, and those that are one, have no such,
// except for a segment that belongs nowhere: that ends the stream. The two ends are cheap to
// change, which is where Reads of ascending sinks, or of one sink, are.
type sinks struct {
	places []uint32 // ring, as long as outstanding's; free-running places there
	head   uint32
	count  uint32
	steps  uint64 // of looks
}

func (s *sinks) at(i uint32) *uint32 { return &s.places[(s.head+i)&uint32(len(s.places)-1)] }

// reads is Read i of a in the order of sinks.
func (a *requester) reads(i uint32) *outstanding {
	return &a.outstanding.slots[*a.sinks.at(i)&uint32(len(a.outstanding.slots)-1)]
}

// begin enters a Request.
func (a *requester) begin(r outstanding) {
	place := a.outstanding.head + a.outstanding.count
	if a.outstanding.push(r); r.atomic {
		return
	}
	s := &a.sinks
	i := a.after(&r)
	if i < s.count-i { // fewer before than after
		s.head--
		for k := range i {
			*s.at(k) = *s.at(k + 1)
		}
	} else {
		for k := s.count; k > i; k-- {
			*s.at(k) = *s.at(k - 1)
		}
	}
	s.count++
	*s.at(i) = place
}

// end takes the oldest Request out.
func (a *requester) end() {
	r := *a.outstanding.at(0)
	if !r.atomic {
		s := &a.sinks
		// the first of its sink is the oldest
		i := a.search(func(x *outstanding) bool { return x.compare(&r) >= 0 })
		if i < s.count-1-i {
			for k := i; k > 0; k-- {
				*s.at(k) = *s.at(k - 1)
			}
			s.head++
		} else {
			for k := i; k+1 < s.count; k++ {
				*s.at(k) = *s.at(k + 1)
			}
		}
		s.count--
	}
	a.outstanding.pop()
}

// forget takes the newest Request out: it is to be sent again.
func (a *requester) forget() {
	r, place := *a.outstanding.at(a.outstanding.count - 1), a.outstanding.end()-1
	if !r.atomic {
		s := &a.sinks
		i := uint32(0)
		for *s.at(i) != place {
			i++
		}
		for ; i+1 < s.count; i++ {
			*s.at(i) = *s.at(i + 1)
		}
		s.count--
	}
	a.outstanding.count--
}

func (r *outstanding) compare(x *outstanding) int {
	return cmp.Or(cmp.Compare(r.sink, x.sink), cmp.Compare(r.sinkTO, x.sinkTO))
}

// after is the place of the first Read whose sink begins beyond that of r.
func (a *requester) after(r *outstanding) uint32 {
	return a.search(func(x *outstanding) bool { return x.compare(r) > 0 })
}

// search is the place of the first Read for which beyond holds; it holds for all that follow.
func (a *requester) search(beyond func(*outstanding) bool) uint32 {
	lo, hi := uint32(0), a.sinks.count
	for lo < hi {
		a.sinks.steps++
		if mid := (lo + hi) / 2; beyond(a.reads(mid)) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// takes says whether a segment of n octets lies in the sink of a Read; otherwise, whether there is
// one of its STag.
func (a *requester) takes(h *ddp.Header, n int) (in, known bool) {
	i := a.after(&outstanding{sink: h.STag, sinkTO: h.TO})
	if i < a.sinks.count && a.reads(i).sink == h.STag {
		known = true // one that begins beyond
	}
	for ; i > 0; i-- {
		a.sinks.steps++
		r := a.reads(i - 1)
		if r.sink != h.STag {
			break
		}
		known = true
		if off := h.TO - r.sinkTO; off <= uint64(r.size) && uint64(n) <= uint64(r.size)-off {
			return true, true
		}
	}
	return false, known
}
