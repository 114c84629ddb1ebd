package rnic

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/rdmap"
)

// wqeOf is the head of wr's entries; wr was checked.
func wqeOf(op Opcode, wr *WorkRequest) wqe {
	w := wqe{
		id: wr.ID, local: wr.Local, remoteOffset: wr.RemoteOffset, remoteSTag: wr.RemoteSTag, op: op, more: uint8(len(wr.List)),
	}
	if op >= OpFetchAdd {
		setOperands(&w, wr)
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
func setOperands(w *wqe, wr *WorkRequest) {
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
