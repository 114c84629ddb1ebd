package rnic

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// putWQE makes w, which is zero, the head of wr's entries; wr was checked. It goes field by
// field: a literal would be built elsewhere and copied in larger words than it was written in,
// and such a load waits.
func putWQE(w *wq.WQE, op Opcode, wr *WorkRequest) {
	w.ID = wr.ID
	w.Local.Offset, w.Local.Length, w.Local.STag = wr.Local.Offset, wr.Local.Length, wr.Local.STag
	w.RemoteOffset, w.RemoteSTag = wr.RemoteOffset, wr.RemoteSTag
	w.Op, w.More = op, uint8(len(wr.List))
	if op >= OpFetchAdd {
		putOperands(w, wr)
	}
	if wr.Signaled {
		w.Flags |= wq.FlagSignaled
	}
	if wr.Solicited {
		w.Flags |= wq.FlagSolicited
	}
	if wr.Fence {
		w.Flags |= wq.FlagFence
	}
	if n := len(wr.Inline); n > 0 {
		w.Flags |= wq.FlagInline
		w.Local.Length = uint32(n)
	}
}

// putOperands is for requests that have more to say than two places.
func putOperands(w *wq.WQE, wr *WorkRequest) {
	switch c := &wr.CompareSwap; wr.Op {
	case OpFetchAdd:
		w.Operands = [3]uint64{wr.Add, wr.Boundary}
	case OpCompareSwap:
		w.Operands = [3]uint64{c.Compare, c.Swap}
		if c.masked() {
			w.More = 1
		}
	case OpImmediate:
		w.Local = SGE{}
		w.Operands[0] = binary.BigEndian.Uint64(wr.Immediate[:])
	case OpSendImmediate:
		w.Operands[0] = uint64(binary.BigEndian.Uint32(wr.Immediate[:4]))
	case OpLocalInvalidate:
		w.Local, w.RemoteSTag = SGE{}, wr.LocalSTag
	}
}

// masked says whether c leaves bits out.
func (c *CompareSwap) masked() bool { return c.CompareMask&c.SwapMask != math.MaxUint64 }

// after is what follows wr's entry besides inline octets. masks is room for what is made here.
func after(wr *WorkRequest, masks *[1]SGE) []SGE {
	if c := &wr.CompareSwap; wr.Op == OpCompareSwap && c.masked() {
		masks[0] = wq.Masks(c.CompareMask, c.SwapMask)
		return masks[:]
	}
	return wr.List
}

// checkRequests validates the options that are about the size of work requests, and fills in
// defaults.
func (o *QPOptions) checkRequests() error {
	if o.SGEMax == 0 {
		o.SGEMax = sgeMaxDefault
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
		return fmt.Errorf("rnic: QPOptions.InlineMax %d, 1 to %d possible, or NoInline", o.InlineMax,
			InlineMaxLimit)
	}
	return nil
}

// checkSend refuses a request that the send queue, its ring, or the protocol has no room for.
func checkSend(wr *WorkRequest, sgeMax, inlineMax int) error {
	switch {
	case wr.Op < OpSend || wr.Op > OpSendImmediate || wr.Op == OpRecv:
		return fmt.Errorf("%w: PostSend of %v", ErrShape, wr.Op)
	case (wr.Op == OpFetchAdd || wr.Op == OpCompareSwap) && wr.Local.Length != 0 &&
		wr.Local.Length != qp.AtomicLen:
		return fmt.Errorf("%w: the word before is of %d octets, Local of %d", ErrShape, qp.AtomicLen,
			wr.Local.Length)
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
		return fmt.Errorf("%w: %v with a List (a Read Request names one sink, RFC 5040 section 4.4: "+
			"post one Read for each range)", ErrShape, op)
	case !op.HasList() && ranges > 0:
		return fmt.Errorf("%w: %v with a List", ErrShape, op)
	case !op.HasInline() && inline > 0:
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

// possible is checkSend of an entry, without room.
func possible(e *wq.WQE) bool {
	switch o := e.Op; {
	case o < OpSend || o > OpSendImmediate || o == OpRecv, e.Refused():
		return false
	case o.IsAtomic() && e.Local.Length != 0 && e.Local.Length != qp.AtomicLen:
		return false
	default:
		return (e.More == 0 || o.HasList()) && (!e.Inline() || o.HasInline())
	}
}
