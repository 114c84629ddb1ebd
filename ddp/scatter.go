package ddp

import "github.com/rnicd/rnicd/internal/wq"

// A receive buffer may be a list of ranges: a message fills them one after the other, and a segment
// may fall into several. Lists stand in the Queue's storage, rangesMax for each slot, so that none
// is allocated while segments come.

// InitLists is Init of a Queue whose buffers may be lists of up to rangesMax ranges. Before
// Stream.Init, which makes room for the longest.
func (q *Queue) InitLists(buffersMax, rangesMax int) {
	if rangesMax < 1 || rangesMax > 1<<15 {
		panic("ddp: Queue.InitLists wants lists of 1 to 2^15 ranges")
	}
	q.Init(buffersMax)
	if rangesMax == 1 {
		return
	}
	q.rangesMax = rangesMax
	if n := buffersMax * rangesMax; n <= cap(q.lists) {
		q.lists = q.lists[:n] // PostList writes what it posts
	} else {
		q.lists = make([]wq.SGE, n)
	}
}

// PostList is Post of a list of ranges, which is copied: 1 up to InitLists' rangesMax of them, of
// 2^32-1 octets together at most (it panics otherwise). Ranges of no octets are not looked at.
func (q *Queue) PostList(id uint64, list []wq.SGE) bool {
	b := RecvBuffer{ID: id, STag: list[0].STag, TO: list[0].Offset, Len: list[0].Length}
	if len(list) == 1 {
		return q.Post(b)
	}
	if len(list) > q.rangesMax {
		panic("ddp: Queue.PostList of more ranges than it was made for")
	}
	for _, r := range list[1:] {
		if b.Len += r.Length; b.Len < r.Length {
			panic("ddp: Queue.PostList of 2^32 octets or more")
		}
	}
	msn := q.first + q.posted
	if !q.Post(b) {
		return false
	}
	q.slot(msn).ranges = uint16(len(list))
	copy(q.list(msn), list)
	return true
}

// list is the ranges of a posted buffer that has several; nil if it is one.
func (q *Queue) list(msn uint32) []wq.SGE {
	n := int(q.slot(msn).ranges)
	if n == 0 {
		return nil
	}
	return q.lists[int(msn&uint32(len(q.slots)-1))*q.rangesMax:][:n]
}

// initScatter has room for the targets of one segment, in all that is given.
func (s *Stream) initScatter(all [][]byte) {
	most := 0
	for _, q := range s.queues {
		if q != nil {
			most = max(most, q.rangesMax)
		}
	}
	switch {
	case most > 0 && all == nil:
		s.targets = make([][]byte, 0, most)
	case most > len(all):
		panic("ddp: Stream.Init wants Targets for the longest list")
	default:
		s.targets = all[:0:most]
	}
}

// scatter copies a segment of n octets at mo of a message into its buffer's list. That it lies
// within the buffer was checked; false means, as in localRange, that what was posted is no writable
// memory: then nothing was written.
func (s *Stream) scatter(list []wq.SGE, mo, n uint32, pieces [][]byte) bool {
	s.targets = s.targets[:0]
	for _, r := range list {
		if mo >= r.Length {
			mo -= r.Length
			continue
		}
		k := min(n, r.Length-mo)
		b := RecvBuffer{STag: r.STag, TO: r.Offset}
		dst, ok := s.localRange(&b, mo, int(k))
		if !ok {
			clear(s.targets)
			return false
		}
		s.targets = append(s.targets, dst)
		if n -= k; n == 0 {
			break
		}
		mo = 0
	}
	copyScattered(s.targets, UntaggedLen, pieces)
	clear(s.targets)
	return true
}

// copyScattered fills the targets with the octets of pieces after the first skip, exactly.
func copyScattered(targets [][]byte, skip int, pieces [][]byte) {
	at := 0
	for _, p := range pieces {
		k := min(skip, len(p))
		p, skip = p[k:], skip-k
		for len(p) > 0 {
			if at == len(targets) {
				panic("ddp: pieces hold more than the ULPDU")
			}
			k = copyOctets(targets[at], p)
			if p, targets[at] = p[k:], targets[at][k:]; len(targets[at]) == 0 {
				at++
			}
		}
	}
	if at != len(targets) {
		panic("ddp: pieces hold less than the ULPDU")
	}
}
