//go:build !purego

#include "textflag.h"

// func extensions() uint32
TEXT ·extensions(SB), NOSPLIT, $0-4
	MOVL $7, AX
	XORL CX, CX
	CPUID
	MOVL CX, ret+0(FP)
	RET
