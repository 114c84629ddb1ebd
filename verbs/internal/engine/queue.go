package engine

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// queue takes work requests from a ring that the program fills. One goroutine at a time.
//
// Each entry is copied before it is looked at. What cannot be is the end of the queue pair, and
// nothing else.
type queue struct {
	*mapping
	shared  *ring.Queue
	entries []wq.WQE
	head    uint32 // entries taken
	sgeMax  int
	broken  bool

	// The request in hand: a copy, as the engine takes it.
	entry wq.WQE
	list  []wq.SGE // its ranges after the first
	data  []byte   // its inline octets
	write uint32   // of a Write with immediate data, whose Write entry is: imm_data
	both  bool     // it is one

	ranges []wq.SGE // room for list
	inline []byte   // for data
}

// newQueue makes a queue for depth requests of so many ranges or inline octets.
func newQueue(depth, sgeMax, inlineMax int) (*queue, error) {
	more := max((sgeMax-1+wq.RangesPerEntry-1)/wq.RangesPerEntry,
		(inlineMax+wq.EntryLen-1)/wq.EntryLen)
	q := &queue{sgeMax: sgeMax, ranges: make([]wq.SGE, sgeMax), inline: make([]byte, inlineMax)}
	var err error
	q.mapping, q.shared, q.entries, err = ringOf[ring.Queue, wq.WQE](ringSize(depth * (1 + more)))
	return q, err
}

// waits says whether the program has posted something.
func (q *queue) waits() bool {
	return !q.broken && atomic.LoadUint32(&q.shared.Tail) != q.head
}

// peek makes the next request the one in hand. n is how many entries it has; 0: there is none, or
// the ring is broken.
func (q *queue) peek() (n uint32) {
	there := atomic.LoadUint32(&q.shared.Tail) - q.head
	switch {
	case q.broken || there == 0:
		return 0
	case there > uint32(len(q.entries)):
		q.broken = true
		return 0
	}
	q.entry = *q.at(0)
	e := &q.entry
	n = 1 + uint32(e.Following())
	if n > there || e.Inline() && int(e.Local.Length) > len(q.inline) || int(e.More) >= q.sgeMax {
		q.broken = true
		return 0
	}
	q.amend()
	return n
}

func (q *queue) at(i uint32) *wq.WQE { return &q.entries[(q.head+i)&uint32(len(q.entries)-1)] }

// taken passes over n entries.
func (q *queue) taken(n uint32) { q.head += n }

// engineFlags are those that the program may set.
const engineFlags = wq.FlagSignaled | wq.FlagSolicited | wq.FlagFence | wq.FlagInline

// amend makes the entry in hand one for the engine, with what follows it in the ring.
func (q *queue) amend() {
	e := &q.entry
	e.Flags &= engineFlags
	q.list, q.data = nil, nil
	switch {
	case e.Inline() && e.Local.Length > 0:
		q.copyInline(int(e.Local.Length))
	case e.Inline():
		e.Flags, e.Local, e.More = e.Flags&^wq.FlagInline, wq.SGE{}, 0
	default:
		q.copyList(int(e.More))
	}
	if q.both = e.Op == wq.OpWriteImmediate; q.both {
		e.Op, q.write = wq.OpWrite, uint32(e.Operands[0])
	}
}

// copyInline takes n octets from the entries after the one in hand.
func (q *queue) copyInline(n int) {
	q.entry.Local, q.entry.More = wq.SGE{Length: uint32(n)}, 0
	q.data = q.inline[:n]
	for i, rest := uint32(1), q.data; len(rest) > 0; i++ {
		rest = rest[copy(rest, q.at(i).Octets()[:]):]
	}
}

// copyList takes n ranges from there.
func (q *queue) copyList(n int) {
	q.list = q.ranges[:n]
	for i, rest := uint32(1), q.list; len(rest) > 0; i++ {
		rest = rest[copy(rest, q.at(i).Ranges()[:]):]
	}
}

// octets are those that the request in hand sends, or reads.
func (q *queue) octets() uint64 {
	n := uint64(q.entry.Local.Length)
	for i := range q.list {
		n += uint64(q.list[i].Length)
	}
	return n
}

// clip cuts the receive buffer in hand to the longest message that there can be.
func (q *queue) clip() {
	room := uint32(ring.MessageMax)
	cut := func(s *wq.SGE) {
		s.Length = min(s.Length, room)
		room -= s.Length
	}
	cut(&q.entry.Local)
	for i := range q.list {
		cut(&q.list[i])
	}
}

// first makes the Write in hand, of a Write with immediate data, one that does not complete by
// itself.
func (q *queue) first() { q.entry.Flags &^= wq.FlagSignaled | wq.FlagSolicited }

// immediate makes the request in hand the second half of a Write with immediate data. The peer's
// verbs find imm_data and the Write's length in the 8 octets.
func (q *queue) immediate() {
	var octets [8]byte
	binary.NativeEndian.PutUint32(octets[:4], q.write) // network order already
	binary.BigEndian.PutUint32(octets[4:], uint32(q.octets()))
	q.list, q.data = nil, nil
	e := &q.entry
	*e = wq.WQE{ID: e.ID, Op: wq.OpImmediate, Flags: e.Flags & (wq.FlagSignaled | wq.FlagSolicited),
		Operands: [3]uint64{binary.BigEndian.Uint64(octets[:])}}
}
