//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Three chains of at least three words each.
#define chainsMin 72

// func updateChains(crc uint32, p []byte) uint32
//
// R0 crc of the first chain, R1 of the second, R2 of the third. R3 octets, R4 how many.
TEXT ·updateChains(SB), NOSPLIT, $0-36
	MOVWU crc+0(FP), R0
	MOVD  p_base+8(FP), R3
	MOVD  p_len+16(FP), R4
	MVNW  R0, R0
	CMP   $chainsMin, R4
	BLO   words
	MOVD  ·chains(SB), R13

split:
	// R5 words in each chain: R4/24, but not more than there are constants for. 2731/65536 is close enough to 1/24.
	MOVD $const_chainsMax, R5
	CMP  $(24*const_chainsMax), R4
	BHS  cut
	MOVD $2731, R6
	MUL  R6, R4, R5
	LSR  $16, R5, R5

cut:
	ADD  R5<<1, R5, R6
	SUB  R6<<3, R4, R4
	ADD  R5<<4, R13, R6
	FLDPD (R6), (F2, F3)

	// R3, R6, R7: the chains. All their words but the last.
	ADD  R5<<3, R3, R6
	ADD  R5<<3, R6, R7
	MOVW ZR, R1
	MOVW ZR, R2
	SUB  $1, R5, R5
	TBZ  $0, R5, pairs
	MOVD.P 8(R3), R8
	MOVD.P 8(R6), R9
	MOVD.P 8(R7), R10
	CRC32CX R8, R0
	CRC32CX R9, R1
	CRC32CX R10, R2

pairs:
	LSR  $1, R5, R5

chain:
	LDP.P 16(R3), (R8, R9)
	LDP.P 16(R6), (R10, R11)
	LDP.P 16(R7), (R12, R14)
	CRC32CX R8, R0
	CRC32CX R10, R1
	CRC32CX R12, R2
	CRC32CX R9, R0
	CRC32CX R11, R1
	CRC32CX R14, R2
	SUBS $1, R5, R5
	BNE  chain

	// The first two chains end; their CRCs, moved to the end of the third, are added to its last word.
	MOVD (R3), R8
	MOVD (R6), R9
	MOVD (R7), R10
	CRC32CX R8, R0
	CRC32CX R9, R1
	FMOVD R0, F0
	FMOVD R1, F1
	VPMULL V2.D1, V0.D1, V0.Q1
	VPMULL V3.D1, V1.D1, V1.Q1
	VEOR  V1.B16, V0.B16, V0.B16
	FMOVD F0, R8
	EOR  R8, R10, R10
	CRC32CX R10, R2
	MOVD R2, R0
	ADD  $8, R7, R3
	CMP  $chainsMin, R4
	BHS  split

words:
	TBZ  $6, R4, less64
	LDP.P 16(R3), (R8, R9)
	LDP.P 16(R3), (R10, R11)
	CRC32CX R8, R0
	CRC32CX R9, R0
	CRC32CX R10, R0
	CRC32CX R11, R0
	LDP.P 16(R3), (R8, R9)
	LDP.P 16(R3), (R10, R11)
	CRC32CX R8, R0
	CRC32CX R9, R0
	CRC32CX R10, R0
	CRC32CX R11, R0

less64:
	TBZ  $5, R4, less32
	LDP.P 16(R3), (R8, R9)
	LDP.P 16(R3), (R10, R11)
	CRC32CX R8, R0
	CRC32CX R9, R0
	CRC32CX R10, R0
	CRC32CX R11, R0

less32:
	TBZ  $4, R4, less16
	LDP.P 16(R3), (R8, R9)
	CRC32CX R8, R0
	CRC32CX R9, R0

less16:
	TBZ  $3, R4, less8
	MOVD.P 8(R3), R8
	CRC32CX R8, R0

less8:
	TBZ  $2, R4, less4
	MOVWU.P 4(R3), R8
	CRC32CW R8, R0

less4:
	TBZ  $1, R4, less2
	MOVHU.P 2(R3), R8
	CRC32CH R8, R0

less2:
	TBZ  $0, R4, done
	MOVBU (R3), R8
	CRC32CB R8, R0

done:
	MVNW R0, R0
	MOVW R0, ret+32(FP)
	RET
