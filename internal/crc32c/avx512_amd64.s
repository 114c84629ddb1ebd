//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "fold_amd64.h"

// func updateAVX512(crc uint32, p []byte) uint32
//
// SI octets, CX how many are left, R8 constants.
TEXT ·updateAVX512(SB), NOSPLIT, $0-36
	MOVQ p_len+16(FP), CX
	CMPQ CX, $64
	JBE  short
	MOVL crc+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ ·folds(SB), R8
	NOTL AX
	VMOVD AX, X0
	VPXORQ (SI), Z0, Z0
	ADDQ $64, SI
	SUBQ $64, CX
	VBROADCASTI32X4 foldConstants_by(R8), Z13
	CMPQ CX, $192
	JBE  single

	VBROADCASTI32X4 (foldConstants_by+48)(R8), Z14
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	ADDQ $192, SI
	SUBQ $192, CX
	CMPQ CX, $256
	JBE  turn

four:
	FOLD(Z14, Z0, Z4, (SI))
	FOLD(Z14, Z1, Z5, 64(SI))
	FOLD(Z14, Z2, Z6, 128(SI))
	FOLD(Z14, Z3, Z7, 192(SI))
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JA   four

turn:
	CMPQ CX, $64
	JBE  merge

	// The oldest of four becomes the newest.
rotate:
	FOLD(Z14, Z0, Z4, (SI))
	VMOVDQA64 Z0, Z5
	VMOVDQA64 Z1, Z0
	VMOVDQA64 Z2, Z1
	VMOVDQA64 Z3, Z2
	VMOVDQA64 Z5, Z3
	ADDQ $64, SI
	SUBQ $64, CX
	CMPQ CX, $64
	JA   rotate

merge:
	VBROADCASTI32X4 (foldConstants_by+32)(R8), Z15
	VBROADCASTI32X4 (foldConstants_by+16)(R8), Z14
	FOLD(Z15, Z0, Z4, Z3)
	VPCLMULQDQ $0x00, Z14, Z1, Z5
	VPCLMULQDQ $0x11, Z14, Z1, Z1
	VPXORQ Z5, Z1, Z1
	FOLD(Z13, Z2, Z6, Z1)
	VPXORQ Z2, Z0, Z0
	JMP  last

single:
	CMPQ CX, $64
	JBE  last

one:
	FOLD(Z13, Z0, Z4, (SI))
	ADDQ $64, SI
	SUBQ $64, CX
	CMPQ CX, $64
	JA   one

	// 1 to 64 octets are left. They make a block whose first octets are 0.
last:
	MOVQ $-1, DX
	LEAQ -64(SI)(CX*1), SI
	MOVQ CX, R9
	NEGQ CX
	SHLQ CX, DX
	KMOVQ DX, K1
	VMOVDQU8.Z (SI), K1, Z1
	SHLQ $6, R9
	VMOVDQU64 foldConstants_end(R8)(R9*1), Z2
	VMOVDQU64 foldConstants_end(R8), Z3
	VPCLMULQDQ $0x00, Z3, Z1, Z4
	VPCLMULQDQ $0x11, Z3, Z1, Z1
	VPXORQ Z4, Z1, Z1
	FOLD(Z2, Z0, Z4, Z1)

	// The four lanes, all moved to the end, add up to one; its CRC is theirs.
	VEXTRACTI64X4 $1, Z0, Y1
	VPXOR Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPXOR X1, X0, X0
	VMOVQ X0, DX
	VPEXTRQ $1, X0, BX
	VZEROUPPER
	XORL AX, AX
	CRC32Q DX, AX
	CRC32Q BX, AX
	NOTL AX
	MOVL AX, ret+32(FP)
	RET

short:
	JMP  ·updateChains(SB)
