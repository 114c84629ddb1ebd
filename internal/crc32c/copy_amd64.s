//go:build !race && !purego

#include "go_asm.h"
#include "textflag.h"
#include "fold_amd64.h"

// TAKE copies a block. What is multiplied is what was stored: the source is read once.
#define TAKE(OFF, D) \
	VMOVDQU64 OFF(SI), D \
	VMOVDQU64 D, OFF(DI)

// BEFORE is what crc, that of the octets before, adds to the last word of CX octets, in AX.
#define BEFORE \
	MOVL crc+0(FP), AX \
	NOTL AX \
	MOVQ ·moves(SB), BX \
	VMOVD AX, X10 \
	VMOVD -16(BX)(CX*4), X11 \
	VPCLMULQDQ $0x00, X11, X10, X10 \
	VMOVQ X10, R10

// func copyAVX512(crc uint32, dst, src *byte, n int) uint32
//
// SI source, DI destination, CX how many octets are left, R8 constants.
TEXT ·copyAVX512(SB), NOSPLIT, $0-36
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ ·folds(SB), R8
	BEFORE
	VPXORQ Z8, Z8, Z8
	CMPQ CX, $320
	JBE  few

	VBROADCASTI32X4 (foldConstants_by+48)(R8), Z14
	TAKE(0, Z0)
	TAKE(64, Z1)
	TAKE(128, Z2)
	TAKE(192, Z3)
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $256, CX
	CMPQ CX, $256
	JBE  merge

four:
	TAKE(0, Z16)
	FOLD(Z14, Z0, Z4, Z16)
	TAKE(64, Z17)
	FOLD(Z14, Z1, Z5, Z17)
	TAKE(128, Z18)
	FOLD(Z14, Z2, Z6, Z18)
	TAKE(192, Z19)
	FOLD(Z14, Z3, Z7, Z19)
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $256, CX
	CMPQ CX, $256
	JA   four

merge:
	MOVQ CX, R9
	SHLQ $6, R9
	ADDQ R8, R9
	VPXORQ Z9, Z9, Z9
	MOVE(192, Z0, Z8)
	MOVE(128, Z1, Z9)
	MOVE(64, Z2, Z8)
	MOVE(0, Z3, Z9)
	VPXORQ Z9, Z8, Z8
	JMP  blocks

few:
	MOVQ CX, R9
	SHLQ $6, R9
	ADDQ R8, R9

	// R9 follows CX.
blocks:
	CMPQ CX, $64
	JBE  last
	TAKE(0, Z1)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	SUBQ $(64*64), R9
	MOVE(0, Z1, Z8)
	JMP  blocks

	// 1 to 64 octets are left. They make a block whose first octets are 0.
last:
	MOVQ $-1, DX
	LEAQ -64(SI)(CX*1), SI
	LEAQ -64(DI)(CX*1), DI
	NEGQ CX
	SHLQ CX, DX
	KMOVQ DX, K1
	VMOVDQU8.Z (SI), K1, Z1
	VMOVDQU8 Z1, K1, (DI)
	MOVQ R8, R9
	MOVE(0, Z1, Z8)
	ADDUP(Z8, Y8, X8, R10)
	VZEROUPPER
	NOTL AX
	MOVL AX, ret+32(FP)
	RET

// MARKER is the first block of a period: the marker in DX, and what comes next. The source is read from 4 octets before that on, which
// the mask leaves out.
#define MARKER(D, XD) \
	BSWAPL DX \
	VMOVD DX, XD \
	BSWAPL DX \
	ADDL $512, DX \
	VMOVDQU32 (SI), K1, D \
	VMOVDQU64 D, (DI)

// func copyMarkedAVX512(crc uint32, dst, src *byte, n, size, room int, marker uint32) uint32
//
// SI source, DI destination, CX how many octets of the source are left, R8 constants, DX marker. Four blocks begin at a marker, or in
// the middle between two. So those before the first four are made four, which begin with zeros: R10 octets.
TEXT ·copyMarkedAVX512(SB), NOSPLIT, $0-60
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI
	MOVQ size+32(FP), CX
	BEFORE
	MOVQ R10, R11
	MOVQ n+24(FP), CX
	MOVQ room+40(FP), R10
	MOVL marker+48(FP), DX
	MOVQ ·folds(SB), R8
	MOVL $0xfffe, AX
	KMOVW AX, K1
	VBROADCASTI32X4 (foldConstants_by+48)(R8), Z14
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3
	MOVQ R10, R12
	CMPQ R10, $256
	JBE  front
	SUBQ $256, R10

front:
	SUBQ R10, CX
	TESTQ R10, R10
	JZ   ready
	LEAQ -1(R10), AX
	ANDL $63, AX
	INCL AX
	SUBQ AX, R10
	ADDQ AX, SI
	ADDQ AX, DI
	MOVQ $-1, BX
	XCHGQ AX, CX
	NEGQ CX
	SHLQ CX, BX
	MOVQ AX, CX
	KMOVQ BX, K2
	VMOVDQU8.Z -64(SI), K2, Z3
	VMOVDQU8 Z3, K2, -64(DI)
	JMP  next

more:
	VMOVDQA64 Z1, Z0
	VMOVDQA64 Z2, Z1
	VMOVDQA64 Z3, Z2
	TAKE(0, Z3)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, R10

next:
	TESTQ R10, R10
	JNZ  more

ready:
	CMPQ R12, $256
	JA   second

	// 252 octets after a marker.
first:
	CMPQ CX, $252
	JB   marker
	SUBQ $4, SI
	MARKER(Z16, X16)
	FOLD(Z14, Z0, Z4, Z16)
	TAKE(64, Z17)
	FOLD(Z14, Z1, Z5, Z17)
	TAKE(128, Z18)
	FOLD(Z14, Z2, Z6, Z18)
	TAKE(192, Z19)
	FOLD(Z14, Z3, Z7, Z19)
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $252, CX

	// 256 octets to the next one.
second:
	CMPQ CX, $256
	JB   merge
	TAKE(0, Z16)
	FOLD(Z14, Z0, Z4, Z16)
	TAKE(64, Z17)
	FOLD(Z14, Z1, Z5, Z17)
	TAKE(128, Z18)
	FOLD(Z14, Z2, Z6, Z18)
	TAKE(192, Z19)
	FOLD(Z14, Z3, Z7, Z19)
	ADDQ $256, SI
	ADDQ $256, DI
	SUBQ $256, CX
	JMP  first

	// 1 to 251 octets after a marker, which is the end of a block of its own; or none, and no marker.
marker:
	TESTQ CX, CX
	JZ   merge
	BSWAPL DX
	MOVL DX, (DI)
	ADDQ $4, DI
	MOVL $0x8000, AX
	KMOVW AX, K2
	VPBROADCASTD.Z DX, K2, Z10
	MOVQ CX, R9
	SHLQ $6, R9
	ADDQ R8, R9
	VPXORQ Z8, Z8, Z8
	VPXORQ Z9, Z9, Z9
	MOVE(0, Z10, Z8)
	MOVE(196, Z0, Z9)
	MOVE(132, Z1, Z8)
	MOVE(68, Z2, Z9)
	MOVE(4, Z3, Z8)
	VPXORQ Z9, Z8, Z8
	JMP  blocks

merge:
	MOVQ CX, R9
	SHLQ $6, R9
	ADDQ R8, R9
	VPXORQ Z8, Z8, Z8
	VPXORQ Z9, Z9, Z9
	MOVE(192, Z0, Z8)
	MOVE(128, Z1, Z9)
	MOVE(64, Z2, Z8)
	MOVE(0, Z3, Z9)
	VPXORQ Z9, Z8, Z8

	// R9 follows CX.
blocks:
	CMPQ CX, $64
	JBE  last
	TAKE(0, Z1)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	SUBQ $(64*64), R9
	MOVE(0, Z1, Z8)
	JMP  blocks

last:
	TESTQ CX, CX
	JZ   sum
	MOVQ $-1, DX
	LEAQ -64(SI)(CX*1), SI
	LEAQ -64(DI)(CX*1), DI
	NEGQ CX
	SHLQ CX, DX
	KMOVQ DX, K1
	VMOVDQU8.Z (SI), K1, Z1
	VMOVDQU8 Z1, K1, (DI)
	MOVQ R8, R9
	MOVE(0, Z1, Z8)

sum:
	ADDUP(Z8, Y8, X8, R11)
	VZEROUPPER
	NOTL AX
	MOVL AX, ret+56(FP)
	RET
