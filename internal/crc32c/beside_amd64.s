//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// The processor has a unit for CRC32 and another one for carry-less multiplication. Each round keeps both at work: it takes four
// vectors, and five words of each of three chains, which are in front of the vectors in the message. The idea, and what a round
// consists of, are from github.com/corsix/fast-crc32 (v4s5x3 there).

#define A0 Y0
#define A1 Y1
#define A2 Y2
#define A3 Y3
#define T0 Y4
#define T1 Y5
#define T2 Y6
#define T3 Y7
#define K Y14
#define WIDTH 32
#define VECTORS 128
#define EVERY 248
#define RECIPROCAL 8457
#define LOADK VBROADCASTI128 (foldConstants_by+16)(R8), K
#define MOVEND(N, R) VMOVDQU (foldConstants_end+64*64*(1-N/2)+32*(N%2))(R8), R
#define REDUCE \
	VEXTRACTI128 $1, Y0, X1 \
	VPXOR X1, X0, X0

// func updateBeside256(crc uint32, p []byte) uint32
TEXT ·updateBeside256(SB), NOSPLIT, $0-36
	MOVL crc+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX
	NOTL AX
	CMPQ CX, $(VECTORS+EVERY)
	JB   short
#include "beside_amd64.h"

#undef A0
#undef A1
#undef A2
#undef A3
#undef T0
#undef T1
#undef T2
#undef T3
#undef K
#undef WIDTH
#undef VECTORS
#undef EVERY
#undef RECIPROCAL
#undef LOADK
#undef MOVEND
#undef REDUCE
#define A0 X0
#define A1 X1
#define A2 X2
#define A3 X3
#define T0 X4
#define T1 X5
#define T2 X6
#define T3 X7
#define K X14
#define WIDTH 16
#define VECTORS 64
#define EVERY 184
#define RECIPROCAL 11398
#define LOADK VMOVDQU foldConstants_by(R8), K
#define MOVEND(N, R) VMOVDQU (foldConstants_end+16*N)(R8), R
#define REDUCE

// func updateBeside128(crc uint32, p []byte) uint32
TEXT ·updateBeside128(SB), NOSPLIT, $0-36
	MOVL crc+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX
	NOTL AX
	CMPQ CX, $(VECTORS+EVERY)
	JB   short
#include "beside_amd64.h"
