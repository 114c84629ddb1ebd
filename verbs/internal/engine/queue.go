package engine

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// queue takes work requests from a ring that the program fills. One goroutine at a time.
//
// Each entry is copied before it is looked at, to where it is carried out from. What cannot be is
// the end of the queue pair, and nothing else.
type queue struct {
	*mapping
	shared    *ring.Queue
	entries   []wq.WQE
	head      uint32 // entries taken
	tail      uint32 // of those that are there, as peek has found it
	counted   uint32 // entries that count has looked at
	sgeMax    int
	inlineMax int
	broken    bool
	ranged    bool // inline octets keep the range that they were copied from, or an empty one
}

// newQueue makes a queue for depth requests of so many ranges or inline octets.
func newQueue(depth, sgeMax, inlineMax int) (*queue, error) {
	more := max((sgeMax-1+wq.RangesPerEntry-1)/wq.RangesPerEntry,
		(inlineMax+wq.EntryLen-1)/wq.EntryLen)
	q := &queue{sgeMax: sgeMax, inlineMax: inlineMax}
	var err error
	q.mapping, q.shared, q.entries, err = ringOf[ring.Queue, wq.WQE](ringSize(depth * (1 + more)))
	return q, err
}

// restart empties the ring. The program posts nothing meanwhile.
func (q *queue) restart() {
	q.head, q.tail, q.counted, q.broken = 0, 0, 0, false
	atomic.StoreUint32(&q.shared.Tail, 0)
}

// waits says whether the program has posted something.
func (q *queue) waits() bool {
	return !q.broken && atomic.LoadUint32(&q.shared.Tail) != q.head
}

// peek copies the next request to r, which has room for the longest. n is how many entries it has;
// 0: there is none, or the ring is broken.
func (q *queue) peek(r *wq.Request) (n uint32) {
	q.tail = atomic.LoadUint32(&q.shared.Tail)
	there := q.tail - q.head
	switch {
	case q.broken || there == 0:
		return 0
	case there > uint32(len(q.entries)):
		q.broken = true
		return 0
	}
	r.WQE = *q.at(0)
	n = 1 + uint32(r.Following())
	if n > there || r.Inline() && int(r.Local.Length) > q.inlineMax || int(r.More) >= q.sgeMax {
		q.broken = true
		return 0
	}
	q.amend(r)
	return n
}

func (q *queue) at(i uint32) *wq.WQE { return &q.entries[(q.head+i)&uint32(len(q.entries)-1)] }

// taken passes over n entries.
func (q *queue) taken(n uint32) { q.head += n }

// engineFlags are those that the program may set.
const engineFlags = wq.FlagSignaled | wq.FlagSolicited | wq.FlagFence | wq.FlagInline

// amend makes r, a copy of the next entry, one for the engine, with what follows it in the ring.
func (q *queue) amend(r *wq.Request) {
	r.Flags &= engineFlags
	if !r.Inline() {
		for i, rest := uint32(1), r.List[:r.More]; len(rest) > 0; i++ {
			rest = rest[copy(rest, q.at(i).Ranges()[:]):]
		}
		return
	}
	if !q.ranged {
		r.Local = wq.SGE{Length: r.Local.Length}
	}
	r.More = 0
	for i, rest := uint32(1), r.Data[:r.Local.Length]; len(rest) > 0; i++ {
		rest = rest[copy(rest, q.at(i).Octets()[:]):]
	}
	if r.Local.Length == 0 {
		r.Flags &^= wq.FlagInline
	}
}

// count tells u of the requests that peek has found since the last call. It looks at what the
// program may still change, which matters to u alone: it says when to wake the program.
func (q *queue) count(u *waiting.Underway) {
	for int32(q.tail-q.counted) > 0 {
		e := &q.entries[q.counted&uint32(len(q.entries)-1)]
		q.counted += 1 + uint32(e.Following())
		u.Take(e.Signaled())
	}
}

// clip cuts a receive buffer to the longest message that there can be.
func clip(r *wq.Request) {
	room := uint32(ring.MessageMax)
	cut := func(s *wq.SGE) {
		s.Length = min(s.Length, room)
		room -= s.Length
	}
	cut(&r.Local)
	for i := range r.List[:r.More] {
		cut(&r.List[i])
	}
}

// split makes r the first part of what it takes of RDMAP, and adds the others to parts. Only the
// last completes, as all of it, if none fails.
func split(r *wq.Request, parts []wq.WQE) []wq.WQE {
	switch {
	case r.Op == wq.OpWriteImmediate:
		return append(parts, splitImmediate(r))
	case r.Op == wq.OpRead && r.More > 0 && r.Total() <= ring.MessageMax:
		return splitRead(r, parts)
	}
	return parts
}

// lastFlags are those of a request that its last part has.
const lastFlags = wq.FlagSignaled | wq.FlagSolicited

// splitImmediate makes r the Write, and returns the request of the immediate data. The peer's verbs
// find imm_data and the Write's length in the 8 octets.
func splitImmediate(r *wq.Request) (immediate wq.WQE) {
	var octets [8]byte
	binary.NativeEndian.PutUint32(octets[:4], uint32(r.Operands[0])) // network order already
	binary.BigEndian.PutUint32(octets[4:], uint32(r.Total()))
	immediate = wq.WQE{ID: r.ID, Op: wq.OpImmediate, Flags: r.Flags & lastFlags,
		Operands: [3]uint64{binary.BigEndian.Uint64(octets[:])}}
	r.Op, r.Flags = wq.OpWrite, r.Flags&^lastFlags
	return immediate
}

// splitRead makes r the Read into its first range: a Read Request names one sink (RFC 5040 section
// 4.4).
func splitRead(r *wq.Request, parts []wq.WQE) []wq.WQE {
	at := r.RemoteOffset + uint64(r.Local.Length)
	for _, s := range r.List[:r.More] {
		parts = append(parts, wq.WQE{ID: r.ID, Op: wq.OpRead, Local: s, RemoteSTag: r.RemoteSTag,
			RemoteOffset: at})
		at += uint64(s.Length)
	}
	parts[len(parts)-1].Flags = r.Flags & lastFlags
	r.Flags, r.More = r.Flags&^lastFlags, 0
	return parts
}

// end says whether what is posted needs a doorbell, because it is flushed.
func (q *queue) end(yes bool) {
	over := uint32(0)
	if yes {
		over = 1
	}
	atomic.StoreUint32(&q.shared.Over, over)
}
