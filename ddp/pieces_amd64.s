//go:build !race && !purego

#include "textflag.h"

// func copyLong(dst []byte, pieces [][]byte) (done, octets int)
//
// DI destination, CX how many octets of it are left, SI the next piece, DX how many are left. A piece is copied 32 octets at a time:
// the first 32, from where the destination is aligned on, and the last 32, which may overlap the others.
TEXT ·copyLong(SB), NOSPLIT, $0-64
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ pieces_base+24(FP), SI
	MOVQ pieces_len+32(FP), DX

piece:
	TESTQ DX, DX
	JZ   end
	MOVQ (SI), R8
	MOVQ 8(SI), R9
	CMPQ R9, $32
	JB   end
	CMPQ R9, CX
	JA   end
	SUBQ R9, CX
	ADDQ $24, SI
	DECQ DX
	VMOVDQU (R8), Y0
	VMOVDQU -32(R8)(R9*1), Y4
	VMOVDQU Y0, (DI)
	MOVQ DI, R10
	NEGQ R10
	ANDQ $31, R10
	CMPQ R9, $128
	JBE  rest
	ADDQ R10, R8
	ADDQ R10, DI
	SUBQ R10, R9
	CMPQ R9, $128
	JBE  rest

four:
	VMOVDQU (R8), Y0
	VMOVDQU 32(R8), Y1
	VMOVDQU 64(R8), Y2
	VMOVDQU 96(R8), Y3
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	ADDQ $128, R8
	ADDQ $128, DI
	SUBQ $128, R9
	CMPQ R9, $128
	JA   four

rest:
	CMPQ R9, $32
	JBE  last
	VMOVDQU (R8), Y0
	VMOVDQU Y0, (DI)
	ADDQ $32, R8
	ADDQ $32, DI
	SUBQ $32, R9
	JMP  rest

last:
	ADDQ R9, DI
	VMOVDQU Y4, -32(DI)
	JMP  piece

end:
	VZEROUPPER
	MOVQ pieces_len+32(FP), AX
	SUBQ DX, AX
	MOVQ AX, done+48(FP)
	SUBQ dst_base+0(FP), DI
	MOVQ DI, octets+56(FP)
	RET
