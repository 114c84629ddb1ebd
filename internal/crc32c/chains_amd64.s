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
