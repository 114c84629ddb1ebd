package rnic

import (
	"unsafe"

	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// What the application fills in and reads is laid out as the rings have it, so that nothing is
// copied twice.

// sges are ranges as the engine has them.
func sges(list []SGE) []qp.SGE {
	return unsafe.Slice((*qp.SGE)(unsafe.SliceData(list)), len(list))
}

// cqes are completions as the engine has them.
func cqes(cs []Completion) []qp.CQE {
	return unsafe.Slice((*qp.CQE)(unsafe.Pointer(unsafe.SliceData(cs))), len(cs))
}

// completionOf is c as the application has it.
func completionOf(c qp.CQE) Completion { return *(*Completion)(unsafe.Pointer(&c)) }

// A wrong index, or a length below zero, does not compile.
var (
	aCompletion Completion
	aCQE        qp.CQE

	_ = [1]struct{}{}[unsafe.Sizeof(aCompletion)-unsafe.Sizeof(aCQE)]
	_ = [1]struct{}{}[unsafe.Sizeof(aCompletion)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.ID)-unsafe.Offsetof(aCQE.ID)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.QP)-unsafe.Offsetof(aCQE.QP)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Len)-unsafe.Offsetof(aCQE.Len)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Op)-unsafe.Offsetof(aCQE.Op)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Status)-unsafe.Offsetof(aCQE.Status)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Solicited)-unsafe.Offsetof(aCQE.Solicited)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.WithImmediate)-unsafe.Offsetof(aCQE.WithImmediate)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Invalidated)-unsafe.Offsetof(aCQE.Invalidated)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Original)-unsafe.Offsetof(aCQE.Original)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Immediate)-unsafe.Offsetof(aCQE.Immediate)]
	_ = [1]struct{}{}[unsafe.Offsetof(aCompletion.Written)-unsafe.Offsetof(aCQE.Written)]
	// A value that is another in the engine makes its term, and so the index, wrong.
	_ = [1]struct{}{}[(OpSend^Opcode(qp.OpSend))|
		(OpWrite^Opcode(qp.OpWrite))|
		(OpRecv^Opcode(qp.OpRecv))|
		(OpSendInvalidate^Opcode(qp.OpSendInvalidate))|
		(OpRead^Opcode(qp.OpRead))|
		(OpFetchAdd^Opcode(qp.OpFetchAdd))|
		(OpCompareSwap^Opcode(qp.OpCompareSwap))|
		(OpImmediate^Opcode(qp.OpImmediate))|
		(OpLocalInvalidate^Opcode(qp.OpLocalInvalidate))]
	_ = [1]struct{}{}[(Success^Status(qp.Success))|
		(LocalProtection^Status(qp.LocalProtection))|
		(LocalLength^Status(qp.LocalLength))|
		(Flushed^Status(qp.Flushed))|
		(RemoteAccess^Status(qp.RemoteAccess))|
		(RemoteInvalidRequest^Status(qp.RemoteInvalidRequest))|
		(RemoteOperation^Status(qp.RemoteOperation))|
		(BadResponse^Status(qp.BadResponse))|
		(LocalOperation^Status(qp.LocalOperation))]
	_ = [1]struct{}{}[(Idle^State(qp.Idle))|
		(Connecting^State(qp.Connecting))|
		(RTS^State(qp.RTS))|
		(Closing^State(qp.Closing))|
		(Terminating^State(qp.Terminating))|
		(Error^State(qp.Error))|
		(Closed^State(qp.Closed))]
	_ = [1]struct{}{}[(EventTerminated^EventKind(qp.EventTerminated))|
		(EventFailed^EventKind(qp.EventFailed))|
		(EventPeerClosed^EventKind(qp.EventPeerClosed))|
		(EventSRQLimit^EventKind(qp.EventSRQLimit))|
		(EventCQOverflow^EventKind(qp.EventCQOverflow))|
		(EventReceiveLow^EventKind(qp.EventReceiveLow))|
		(EventReceiveHigh^EventKind(qp.EventReceiveHigh))|
		(EventSlowPath^EventKind(qp.EventSlowPath))]
	_ = [1]struct{}{}[(SGEMaxLimit^qp.SGEMaxLimit)|
		(InlineMaxLimit^qp.InlineMaxLimit)|
		(SharedSGEMax^qp.SharedSGEMax)]
	_ = [1]struct{}{}[(ReadDepthULP^qp.ReadDepthULP)|
		(ReadDepthDefault^qp.ReadDepthDefault)]
)
