package ddp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// RecvBuffer is a posted untagged buffer: one local range, or the first of several (scatter.go).
type RecvBuffer struct {
	ID   uint64
	STag mem.STag
	TO   uint64
	Len  uint32 // of all ranges
}

// recvSlot is a posted buffer and what its message has shown so far. A segment never
// ends at stream position zero, so zero says "none" in both positions.
type recvSlot struct {
	buffer    RecvBuffer
	lastEnd   uint64 // stream position after the segment with the L flag
	placedEnd uint64 // highest stream position of any segment placed
	moMax     uint32 // highest MO placed
	ranges    uint16 // of a list, which stands in Queue.lists; 0: the buffer is one range
	aside     bool   // its message was placed by PlaceAside
}

// Queue is the receive side of one QN of one stream: a ring of posted buffers by MSN. Buffers are
// used in the order posted, the first for MSN 1 (section 7.1.2).
//
//	          first                first+posted
//	 delivered │ posted, may be placed │ no buffer
//	─── 2/03 ──┴───────────────────────┴── 2/02 ───► MSN modulo 2^32
//
// It belongs to the goroutine of its Stream. Post is allowed at any time from there.
type Queue struct {
	slots  []recvSlot
	first  uint32 // MSN of the oldest buffer that has not been delivered
	posted uint32

	lists     []wq.SGE // rangesMax for each slot
	rangesMax int
	begun     uint32 // of these, how many hold a segment

	one [1]recvSlot // slots, if there is one
}

// Init makes room for buffersMax posted buffers, a power of two (it panics otherwise), and sets the
// first MSN to 1. It allocates what an earlier Init has not.
func (q *Queue) Init(buffersMax int) {
	if buffersMax <= 0 || buffersMax&(buffersMax-1) != 0 || int64(buffersMax) > 1<<30 {
		panic("ddp: Queue.Init wants a power of two up to 2^30")
	}
	*q = Queue{first: 1, slots: q.slots[:0], lists: q.lists[:0]}
	switch {
	case buffersMax == 1:
		q.slots = q.one[:]
	case buffersMax <= cap(q.slots):
		q.slots = q.slots[:buffersMax] // Post writes all of one
	default:
		q.slots = make([]recvSlot, buffersMax)
	}
}

// Memory is what this Queue has made, for Init of another that is a copy of it, and nothing else:
// of what has more room than for buffersMax buffers, or for lists of rangesMax ranges in them,
// nothing.
func (q *Queue) Memory(buffersMax, rangesMax int) (m Queue) {
	if n := cap(q.slots); n > 1 && n <= buffersMax { // one is the Queue's own
		m.slots = q.slots[:0]
	}
	if cap(q.lists) <= buffersMax*rangesMax {
		m.lists = q.lists[:0]
	}
	return m
}

// Post adds a buffer for the next message that has none; false when buffersMax are posted. The
// range belongs to the stream until the buffer comes back in a Delivered or from Flush. Its STag is
// resolved when a segment is placed: a range that does not exist then fails the stream as a local
// catastrophic error.
func (q *Queue) Post(b RecvBuffer) bool {
	if int(q.posted) == len(q.slots) {
		return false
	}
	*q.slot(q.first + q.posted) = recvSlot{buffer: b}
	q.posted++
	return true
}

// Posted is the number of buffers posted and not yet delivered; those being filled count.
func (q *Queue) Posted() int { return int(q.posted) }

// Wants is how many buffers have to be posted so that the message of msn has one: 0 when it has
// one, or had. A caller that posts on demand bounds it: a peer may name any MSN.
func (q *Queue) Wants(msn uint32) uint32 {
	age := q.age(msn)
	if age < int32(q.posted) {
		return 0
	}
	return uint32(age) - q.posted + 1
}

// Next is the MSN of the oldest message that was not delivered.
func (q *Queue) Next() uint32 { return q.first }

// Begun is the number of buffers posted and not yet delivered that a segment was placed for.
func (q *Queue) Begun() int { return int(q.begun) }

// Flush removes and returns the oldest posted buffer that was not delivered; false when none is
// left. For a stream that is going down: a segment for a flushed buffer is refused as one for a
// completed message.
func (q *Queue) Flush() (RecvBuffer, bool) {
	if q.posted == 0 {
		return RecvBuffer{}, false
	}
	return q.take(), true
}

func (q *Queue) slot(msn uint32) *recvSlot { return &q.slots[msn&uint32(len(q.slots)-1)] }

// take removes the oldest buffer, which must be there.
func (q *Queue) take() RecvBuffer {
	r := q.slot(q.first)
	if r.placedEnd != 0 {
		q.begun--
	}
	q.first++
	q.posted--
	return r.buffer
}

// age places msn against the window, modulo 2^32: negative is below, posted or more is above.
func (q *Queue) age(msn uint32) int32 { return int32(msn - q.first) }

// find returns the slot of msn, or the code of an Untagged Buffer Error: section 9.1 items 2 and 5.
func (q *Queue) find(msn uint32) (*recvSlot, uint8) {
	switch age := q.age(msn); {
	case age < 0:
		return nil, CodeMSNRange
	case uint32(age) >= q.posted:
		return nil, CodeNoBuffer
	}
	return q.slot(msn), 0
}

// check holds a segment against the buffer and against the segments of its message that were placed
// before, in whatever order. 0 is no error; again says that the very last segment was placed
// already.
//
// The drafts do not ask the sink to verify that a message is whole (section 7.2), but they do say
// that L is on one segment only, the last in the stream and the one with the highest MO (section
// 6.1). Holding the sender to it keeps the reported message length true and a message from being
// delivered twice.
func (r *recvSlot) check(h *Header, end uint64, payload uint32) (code uint8, again bool) {
	if r.aside && end != r.lastEnd {
		// the message was one segment, and nothing of it is in the buffer
		return CodeMSNRange, false
	}
	// Section 9.1 items 3 and 4. A segment without payload may stand right at the end, but not
	// beyond: MO is the message length when it is the last.
	if h.MO > r.buffer.Len || h.MO == r.buffer.Len && payload > 0 {
		return CodeInvalidMO, false
	}
	if payload > r.buffer.Len-h.MO {
		return CodeTooLong, false
	}
	switch {
	case r.lastEnd != 0 && end == r.lastEnd:
		return 0, true
	case r.lastEnd != 0 && end > r.lastEnd, h.Last && end < r.placedEnd:
		return CodeMSNRange, false // octets after the last, or a second last
	case r.lastEnd != 0 && h.MO > r.moMax, h.Last && h.MO < r.moMax:
		return CodeInvalidMO, false
	}
	return 0, false
}

// note records a segment placed for r for check.
func (q *Queue) note(r *recvSlot, h *Header, end uint64) {
	if r.placedEnd == 0 {
		q.begun++
	}
	r.placedEnd = max(r.placedEnd, end)
	r.moMax = max(r.moMax, h.MO)
	if h.Last {
		r.lastEnd = end
	}
}
