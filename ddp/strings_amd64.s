//go:build !race && !purego

#include "textflag.h"

// func copyString(dst, src *byte, n int)
TEXT ·copyString(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	REP; MOVSB
	RET

// func fastStrings() bool
TEXT ·fastStrings(SB), NOSPLIT, $0-1
	MOVL $7, AX
	XORL CX, CX
	CPUID
	SHRL $4, DX
	ANDL $1, DX
	MOVB DX, ret+0(FP)
	RET
