//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Three chains of at least three words each: below, one chain is as fast.
#define chainsMin 72

// func updateChains(crc uint32, p []byte) uint32
//
// AX crc of the first chain, BX of the second, DX of the third. SI octets, CX how many.
TEXT ·updateChains(SB), NOSPLIT, $0-36
	MOVL crc+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX
	NOTL AX
	CMPQ CX, $chainsMin
	JB   words

split:
	// R8 words in each chain: CX/24, but not more than there are constants for. 2731/65536 is close enough to 1/24.
	MOVL $const_chainsMax, R8
	CMPQ CX, $(24*const_chainsMax)
	JAE  cut
	IMUL3L $2731, CX, R8
	SHRL $16, R8

cut:
	LEAQ (R8)(R8*2), R9
	SHLQ $3, R9
	SUBQ R9, CX
	MOVQ ·chains(SB), R9
	MOVQ R8, R10
	SHLQ $4, R10
	MOVOU (R9)(R10*1), X2

	// SI, R9, R10: the last word of each chain. All but the last one are read at R8 words from there.
	LEAQ -8(SI)(R8*8), SI
	LEAQ (SI)(R8*8), R9
	LEAQ (R9)(R8*8), R10
	XORL BX, BX
	XORL DX, DX
	NEGQ R8
	INCQ R8

chain:
	CRC32Q (SI)(R8*8), AX
	CRC32Q (R9)(R8*8), BX
	CRC32Q (R10)(R8*8), DX
	INCQ R8
	JNZ  chain

	// The first two chains end; their CRCs, moved to the end of the third, are added to its last word.
	CRC32Q (SI), AX
	CRC32Q (R9), BX
	MOVQ AX, X0
	MOVQ BX, X1
	PCLMULQDQ $0x00, X2, X0
	PCLMULQDQ $0x10, X2, X1
	PXOR X1, X0
	MOVQ X0, AX
	XORQ (R10), AX
	CRC32Q AX, DX
	MOVQ DX, AX
	LEAQ 8(R10), SI
	CMPQ CX, $chainsMin
	JAE  split

	// Fewer than 72 octets: straight through, as a loop's end would be guessed wrong more often than what the bits of CX say.
words:
	BTL  $6, CX
	JNC  less64
	CRC32Q (SI), AX
	CRC32Q 8(SI), AX
	CRC32Q 16(SI), AX
	CRC32Q 24(SI), AX
	CRC32Q 32(SI), AX
	CRC32Q 40(SI), AX
	CRC32Q 48(SI), AX
	CRC32Q 56(SI), AX
	ADDQ $64, SI

less64:
	BTL  $5, CX
	JNC  less32
	CRC32Q (SI), AX
	CRC32Q 8(SI), AX
	CRC32Q 16(SI), AX
	CRC32Q 24(SI), AX
	ADDQ $32, SI

less32:
	BTL  $4, CX
	JNC  less16
	CRC32Q (SI), AX
	CRC32Q 8(SI), AX
	ADDQ $16, SI

less16:
	BTL  $3, CX
	JNC  less8
	CRC32Q (SI), AX
	ADDQ $8, SI

less8:
	BTL  $2, CX
	JNC  less4
	CRC32L (SI), AX
	ADDQ $4, SI

less4:
	BTL  $1, CX
	JNC  less2
	CRC32W (SI), AX
	ADDQ $2, SI

less2:
	BTL  $0, CX
	JNC  done
	CRC32B (SI), AX

done:
	NOTL AX
	MOVL AX, ret+32(FP)
	RET

// FOLD moves the block A by the constants K and adds the block D. T is overwritten.
#define FOLD(K, A, T, D) \
	VPCLMULQDQ $0x00, K, A, T \
	VPCLMULQDQ $0x11, K, A, A \
	VPTERNLOGD $0x96, D, T, A

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
