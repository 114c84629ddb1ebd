package engine

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
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

	entry  wq.WQE // in hand
	wr     rnic.WorkRequest
	list   []rnic.SGE
	inline []byte
}

// newQueue makes a queue for depth requests of so many ranges or inline octets.
func newQueue(depth, sgeMax, inlineMax int) (*queue, error) {
	more := max((sgeMax-1+wq.RangesPerEntry-1)/wq.RangesPerEntry, (inlineMax+wq.EntryLen-1)/wq.EntryLen)
	q := &queue{sgeMax: sgeMax, list: make([]rnic.SGE, sgeMax), inline: make([]byte, inlineMax)}
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
	q.request()
	return n
}

func (q *queue) at(i uint32) *wq.WQE { return &q.entries[(q.head+i)&uint32(len(q.entries)-1)] }

// taken gives n entries back to the program.
func (q *queue) taken(n uint32) {
	q.head += n
	atomic.StoreUint32(&q.shared.Head, q.head)
}

// request makes a work request of the entry in hand.
func (q *queue) request() {
	e, wr := &q.entry, &q.wr
	*wr = rnic.WorkRequest{
		ID: e.ID, Op: e.Op, Local: e.Local, RemoteOffset: e.RemoteOffset, RemoteSTag: e.RemoteSTag,
		Signaled: e.Signaled(), Solicited: e.Solicited(), Fence: e.Fence(),
	}
	switch e.Op {
	case wq.OpFetchAdd:
		wr.Add = e.Operands[0]
	case wq.OpCompareSwap:
		wr.CompareSwap = rnic.CompareSwap{Compare: e.Operands[0], CompareMask: ^uint64(0), Swap: e.Operands[1], SwapMask: ^uint64(0)}
	case wq.OpLocalInvalidate:
		wr.RemoteSTag, wr.LocalSTag = 0, e.RemoteSTag
	case wq.OpWriteImmediate:
		wr.Op, wr.Signaled, wr.Solicited = rnic.OpWrite, false, false
	}
	if e.Inline() {
		q.copyInline(int(e.Local.Length))
	} else if e.More > 0 {
		q.copyList(int(e.More))
	}
}

// copyInline takes n octets from the entries after the one in hand.
func (q *queue) copyInline(n int) {
	q.wr.Local = rnic.SGE{}
	q.wr.Inline = q.inline[:n]
	for i, rest := uint32(1), q.wr.Inline; len(rest) > 0; i++ {
		rest = rest[copy(rest, q.at(i).Octets()[:]):]
	}
}

// copyList takes n ranges from there.
func (q *queue) copyList(n int) {
	for i := range n {
		q.list[i] = q.at(uint32(1 + i/wq.RangesPerEntry)).Ranges()[i%wq.RangesPerEntry]
	}
	q.wr.List = q.list[:n]
}

// octets are those that the request in hand sends, or reads.
func (q *queue) octets() uint64 {
	n := uint64(q.wr.Local.Length)
	for i := range q.wr.List {
		n += uint64(q.wr.List[i].Length)
	}
	return n
}

// clip cuts the receive buffer in hand to the longest message that there can be.
func (q *queue) clip() {
	room := uint32(ring.MessageMax)
	cut := func(s *rnic.SGE) {
		s.Length = min(s.Length, room)
		room -= s.Length
	}
	cut(&q.wr.Local)
	for i := range q.wr.List {
		cut(&q.wr.List[i])
	}
}

// immediate makes the request in hand the second half of a Write with immediate data. The peer's
// verbs find imm_data and the Write's length in the 8 octets.
func (q *queue) immediate() {
	e := &q.entry
	length := e.Local.Length
	for _, s := range q.wr.List {
		length += s.Length
	}
	q.wr = rnic.WorkRequest{ID: e.ID, Op: rnic.OpImmediate, Signaled: e.Signaled(), Solicited: e.Solicited()}
	binary.NativeEndian.PutUint32(q.wr.Immediate[:4], uint32(e.Operands[0])) // network order already
	binary.BigEndian.PutUint32(q.wr.Immediate[4:], length)
}
