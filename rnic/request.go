package rnic

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// putWQE makes w, which is zero, the head of wr's entries; wr was checked. It goes field by field: a
// literal would be built elsewhere and copied in larger words than it was written in, and such a
// load waits.
func putWQE(w *qp.WQE, op Opcode, wr *WorkRequest) {
	w.ID = wr.ID
	w.Local.STag, w.Local.Length, w.Local.Offset = wr.Local.STag, wr.Local.Length, wr.Local.Offset
	w.RemoteOffset, w.RemoteSTag = wr.RemoteOffset, wr.RemoteSTag
	w.Op, w.More = qp.Opcode(op), uint8(len(wr.List))
	if op >= OpFetchAdd {
		setOperands(w, wr)
		w.More = uint8(len(rangesAfter(wr)))
	}
	if wr.Signaled {
		w.Flags |= qp.FlagSignaled
	}
	if wr.Solicited {
		w.Flags |= qp.FlagSolicited
	}
	if wr.Fence {
		w.Flags |= qp.FlagFence
	}
	if n := len(wr.Inline); n > 0 {
		w.Flags |= qp.FlagInline
		w.Local.Length = uint32(n)
	}
}

// rangesAfter are the ranges that follow wr's entry. Where an atomic's operands are in place of Local,
// Local is one.
func rangesAfter(wr *WorkRequest) []qp.SGE {
	if wr.Local.Length > 0 && (wr.Op == OpFetchAdd || wr.Op == OpCompareSwap) {
		return sges(unsafe.Slice(&wr.Local, 1))
	}
	return sges(wr.List)
}

// setOperands is for requests that have operands in place of a range.
func setOperands(w *qp.WQE, wr *WorkRequest) {
	switch wr.Op {
	case OpFetchAdd:
		w.Local = qp.SGE{Length: qp.AtomicLen}
		w.Operands = [3]uint64{wr.Add, wr.Boundary}
	case OpCompareSwap:
		c := &wr.CompareSwap
		w.Local = qp.SGE{Length: qp.AtomicLen, Offset: c.Compare}
		w.Operands = [3]uint64{c.CompareMask, c.Swap, c.SwapMask}
	case OpImmediate:
		w.Local = qp.SGE{Length: rdmap.ImmediateLen}
		w.Operands[0] = binary.BigEndian.Uint64(wr.Immediate[:])
	case OpLocalInvalidate:
		w.Local = qp.SGE{STag: wr.LocalSTag}
	}
}

// checkRequests validates the options that are about the size of work requests, and fills in
// defaults.
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
	case (wr.Op == OpFetchAdd || wr.Op == OpCompareSwap) && wr.Local.Length != 0 && wr.Local.Length != qp.AtomicLen:
		return fmt.Errorf("%w: the word before is of %d octets, Local of %d", ErrShape, qp.AtomicLen, wr.Local.Length)
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

// hasList says whether a request may have several ranges, hasInline whether its octets may come
// with it.
func (o Opcode) hasList() bool   { return o == OpRecv || o.hasInline() }
func (o Opcode) hasInline() bool { return o == OpSend || o == OpSendInvalidate || o == OpWrite }
