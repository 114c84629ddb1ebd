package rnic

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// wqe is a work request as the rings have it: 64 octets, fixed, pointer-free, so that a ring may lie on hugepages and be
// shared. What does not fit stands in entries right behind it, which the consumer sees together with it (mem.MPSC.PushAll):
//
//	wqe | ranges: 4 an entry ...      WorkRequest.List
//	wqe | octets: 64 an entry ...     WorkRequest.Inline
//
// The application's slices are read by the posting call alone.
type wqe struct {
	id           uint64
	local        SGE // first range; of inline data, atomics and immediate data its Length only
	remoteOffset uint64
	remoteSTag   mem.STag
	op           Opcode
	flags        wqeFlags
	more         uint8 // ranges behind local
	_            uint8
	operands     [3]uint64 // of atomics, and immediate data
}

type wqeFlags uint8

const (
	flagSignaled wqeFlags = 1 << iota
	flagSolicited
	flagFence
	flagInline
)

func (w *wqe) signaled() bool  { return w.flags&flagSignaled != 0 }
func (w *wqe) solicited() bool { return w.flags&flagSolicited != 0 }
func (w *wqe) fence() bool     { return w.flags&flagFence != 0 }
func (w *wqe) inline() bool    { return w.flags&flagInline != 0 }

const (
	wqeLen         = 64
	rangesPerEntry = wqeLen / int(unsafe.Sizeof(SGE{}))
	// entriesMoreMax is what the longest list, or inline data, takes behind its wqe.
	entriesMoreMax = max((SGEMaxLimit-1+rangesPerEntry-1)/rangesPerEntry, InlineMaxLimit/wqeLen)
)

// An entry behind a wqe is one too, for the ring.
type (
	rangesEntry [rangesPerEntry]SGE
	octetsEntry [wqeLen]byte
)

func (w *wqe) ranges() *rangesEntry { return (*rangesEntry)(unsafe.Pointer(w)) }
func (w *wqe) octets() *octetsEntry { return (*octetsEntry)(unsafe.Pointer(w)) }

// behind is how many entries follow w.
func (w *wqe) behind() int {
	if w.inline() {
		return (int(w.local.Length) + wqeLen - 1) / wqeLen
	}
	return (int(w.more) + rangesPerEntry - 1) / rangesPerEntry
}

// entriesFor is how many entries a ring needs for depth requests, each as long as the limits allow.
func entriesFor(depth, sgeMax, inlineMax int) int {
	longest := wqe{more: uint8(sgeMax - 1)}
	octets := wqe{flags: flagInline, local: SGE{Length: uint32(inlineMax)}}
	return ringSize(depth * (1 + max(longest.behind(), octets.behind())))
}

// wqeOf is the head of wr's entries; wr was checked.
func wqeOf(op Opcode, wr *WorkRequest) wqe {
	w := wqe{
		id: wr.ID, local: wr.Local, remoteOffset: wr.RemoteOffset, remoteSTag: wr.RemoteSTag, op: op, more: uint8(len(wr.List)),
	}
	if op >= OpFetchAdd {
		w.setOperands(wr)
	}
	if wr.Signaled {
		w.flags |= flagSignaled
	}
	if wr.Solicited {
		w.flags |= flagSolicited
	}
	if wr.Fence {
		w.flags |= flagFence
	}
	if n := len(wr.Inline); n > 0 {
		w.flags |= flagInline
		w.local.Length = uint32(n)
	}
	return w
}

// setOperands is for requests that have operands in place of a range.
func (w *wqe) setOperands(wr *WorkRequest) {
	switch w.op {
	case OpFetchAdd:
		w.local = SGE{Length: atomicLen}
		w.operands = [3]uint64{wr.Add, wr.Boundary}
	case OpCompareSwap:
		c := &wr.CompareSwap
		w.local = SGE{Length: atomicLen, Offset: c.Compare}
		w.operands = [3]uint64{c.CompareMask, c.Swap, c.SwapMask}
	case OpImmediate:
		w.local = SGE{Length: rdmap.ImmediateLen}
		w.operands[0] = binary.BigEndian.Uint64(wr.Immediate[:])
	case OpLocalInvalidate:
		w.local = SGE{STag: wr.LocalSTag}
	}
}

// pushWork queues w and what stands behind it; false when the ring has no room for all.
func pushWork(ring *mem.MPSC[wqe], w *wqe, list []SGE, inline []byte) bool {
	if len(list) == 0 && len(inline) == 0 {
		return ring.Push(*w)
	}
	var run [1 + entriesMoreMax]wqe
	run[0] = *w
	n := 1
	for ; len(list) > 0; n++ {
		list = list[copy(run[n].ranges()[:], list):]
	}
	for ; len(inline) > 0; n++ {
		inline = inline[copy(run[n].octets()[:], inline):]
	}
	return ring.PushAll(run[:n])
}

// popBehind takes the entries behind w, which was just popped, to list or inline as long as w says. Consumer.
func popBehind(ring *mem.MPSC[wqe], w *wqe, list []SGE, inline []byte) {
	for range w.behind() {
		e, ok := ring.Pop()
		if !ok {
			panic("rnic: a work request came without its entries")
		}
		list = list[copy(list, e.ranges()[:]):]
		inline = inline[copy(inline, e.octets()[:]):]
	}
}

// dropBehind forgets the entries behind w.
func dropBehind(ring *mem.MPSC[wqe], w *wqe) { popBehind(ring, w, nil, nil) }

// checkRequests validates the options that are about the size of work requests, and fills in defaults.
func (o *QPOptions) checkRequests() error {
	if o.SGEMax == 0 {
		o.SGEMax = SGEMaxDefault
	}
	switch o.InlineMax {
	case 0:
		o.InlineMax = InlineMaxDefault
	case NoInline:
		o.InlineMax = 0
	}
	switch {
	case o.SGEMax < 1 || o.SGEMax > SGEMaxLimit:
		return fmt.Errorf("rnic: QPOptions.SGEMax %d, 1 to %d possible", o.SGEMax, SGEMaxLimit)
	case o.InlineMax < 0 || o.InlineMax > InlineMaxLimit:
		return fmt.Errorf("rnic: QPOptions.InlineMax %d, 1 to %d possible, or NoInline", o.InlineMax, InlineMaxLimit)
	}
	return nil
}

// checkSend refuses a request that the send queue, its ring, or the protocol has no room for.
func checkSend(wr *WorkRequest, sgeMax, inlineMax int) error {
	switch {
	case wr.Op < OpSend || wr.Op > OpLocalInvalidate || wr.Op == OpRecv:
		return fmt.Errorf("%w: PostSend of %v", ErrShape, wr.Op)
	case len(wr.List) == 0 && len(wr.Inline) == 0:
		return nil
	}
	return checkLong(wr.Op, wr, sgeMax, inlineMax)
}

// checkRecv is checkSend of a receive buffer.
func checkRecv(wr *WorkRequest, sgeMax int) error {
	switch {
	case wr.Op != 0 && wr.Op != OpRecv:
		return fmt.Errorf("%w: PostRecv of %v", ErrShape, wr.Op)
	case len(wr.List) == 0 && len(wr.Inline) == 0:
		return nil
	}
	return checkLong(OpRecv, wr, sgeMax, 0)
}

func checkLong(op Opcode, wr *WorkRequest, sgeMax, inlineMax int) error {
	ranges, inline := len(wr.List), len(wr.Inline)
	switch {
	case op == OpRead && ranges > 0:
		return fmt.Errorf("%w: %v with a List (a Read Request names one sink, RFC 5040 section 4.4: post one Read for each range)", ErrShape, op)
	case !op.hasList() && ranges > 0:
		return fmt.Errorf("%w: %v with a List", ErrShape, op)
	case !op.hasInline() && inline > 0:
		return fmt.Errorf("%w: %v with Inline data", ErrShape, op)
	case inline > 0 && (ranges > 0 || wr.Local != SGE{}):
		return fmt.Errorf("%w: %v with Inline data and with Local or List", ErrShape, op)
	case 1+ranges > sgeMax:
		return fmt.Errorf("%w: %d, the limit is %d", ErrListTooLong, 1+ranges, sgeMax)
	case inline > inlineMax:
		return fmt.Errorf("%w: %d octets, the limit is %d", ErrInlineTooLong, inline, inlineMax)
	}
	total := uint64(wr.Local.Length)
	for i := range wr.List {
		total += uint64(wr.List[i].Length)
	}
	if total > math.MaxUint32 {
		return fmt.Errorf("%w: %d", ErrTooLong, total)
	}
	return nil
}

// hasList says whether a request may have several ranges, hasInline whether its octets may come with it.
func (o Opcode) hasList() bool   { return o == OpRecv || o.hasInline() }
func (o Opcode) hasInline() bool { return o == OpSend || o == OpSendInvalidate || o == OpWrite }
