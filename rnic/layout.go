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
	_ = [1]struct{}{}[OpLocalInvalidate-Opcode(qp.OpLocalInvalidate)]
	_ = [1]struct{}{}[LocalOperation-Status(qp.LocalOperation)]
	_ = [1]struct{}{}[SGEMaxLimit-qp.SGEMaxLimit+InlineMaxLimit-qp.InlineMaxLimit+SharedSGEMax-qp.SharedSGEMax]
	_ = [1]struct{}{}[ReadDepthULP-qp.ReadDepthULP+ReadDepthDefault-qp.ReadDepthDefault]
)
