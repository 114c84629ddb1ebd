// The body of updateBeside256 and updateBeside128. Included with
//
//	A0 to A3, T0 to T3, K   registers of the vectors' width: sums, spare ones, constants
//	WIDTH, VECTORS          octets of a register, of four
//	EVERY, RECIPROCAL       octets of a round, and 2^21/EVERY, rounded up
//	LOADK, REDUCE           K is what moves by VECTORS octets; A0's lanes are added up in X0
//
// AX, BX, DX CRCs of the chains, which are at SI, R9, R11. R13 the vectors. R10 rounds, R12 words
// that each chain has in excess of them. CX octets after the piece.

// A piece: the octets that no word of a chain takes; three chains; vectors. The fewest octets
// make one round.
piece:
	MOVQ CX, R9
	MOVQ $const_pieceMax, R10
	CMPQ R9, R10
	CMOVQHI R10, R9
	SUBQ R9, CX
	LEAQ -VECTORS(R9), R10
	IMUL3Q $RECIPROCAL, R10, R10
	SHRQ $21, R10
	LEAQ 1(R10), R11
	IMUL3Q $VECTORS, R11, R11
	SUBQ R11, R9
	IMUL3Q $2731, R9, R12 // 2731/65536 is close enough to 1/24
	SHRQ $16, R12
	LEAQ (R12)(R12*2), R13
	SHLQ $3, R13
	SUBQ R13, R9

	// What moves the chains' CRCs to the end: R11 octets of vectors after the third, R12
	// words more after the second, and the first.
	MOVQ ·moves(SB), R8
	LEAQ -16(R8)(R11*4), R8
	MOVQ R12, R11
	SHLQ $5, R11
	VMOVD (R8), X10
	VMOVD (R8)(R11*1), X9
	VMOVD (R8)(R11*2), X8

	BTL  $4, R9
	JNC  less16
	CRC32Q (SI), AX
	CRC32Q 8(SI), AX
	ADDQ $16, SI

less16:
	BTL  $3, R9
	JNC  less8
	CRC32Q (SI), AX
	ADDQ $8, SI

less8:
	BTL  $2, R9
	JNC  less4
	CRC32L (SI), AX
	ADDQ $4, SI

less4:
	BTL  $1, R9
	JNC  less2
	CRC32W (SI), AX
	ADDQ $2, SI

less2:
	BTL  $0, R9
	JNC  even
	CRC32B (SI), AX
	INCQ SI

even:
	LEAQ (SI)(R12*8), R9
	LEAQ (R9)(R12*8), R11
	LEAQ (R11)(R12*8), R13
	LEAQ (R10)(R10*4), BX
	SUBQ BX, R12
	XORL BX, BX
	XORL DX, DX
	MOVQ ·folds(SB), R8
	LOADK
	VMOVDQU (R13), A0
	VMOVDQU WIDTH(R13), A1
	VMOVDQU (2*WIDTH)(R13), A2
	VMOVDQU (3*WIDTH)(R13), A3
	ADDQ $VECTORS, R13

	// Four vectors, and five words of each chain.
round:
	VPCLMULQDQ $0x00, K, A0, T0
	VPCLMULQDQ $0x11, K, A0, A0
	VPXOR (R13), T0, T0
	VPXOR T0, A0, A0
	CRC32Q (SI), AX
	CRC32Q (R9), BX
	CRC32Q (R11), DX
	VPCLMULQDQ $0x00, K, A1, T1
	VPCLMULQDQ $0x11, K, A1, A1
	VPXOR WIDTH(R13), T1, T1
	VPXOR T1, A1, A1
	CRC32Q 8(SI), AX
	CRC32Q 8(R9), BX
	CRC32Q 8(R11), DX
	VPCLMULQDQ $0x00, K, A2, T2
	VPCLMULQDQ $0x11, K, A2, A2
	VPXOR (2*WIDTH)(R13), T2, T2
	VPXOR T2, A2, A2
	CRC32Q 16(SI), AX
	CRC32Q 16(R9), BX
	CRC32Q 16(R11), DX
	VPCLMULQDQ $0x00, K, A3, T3
	VPCLMULQDQ $0x11, K, A3, A3
	VPXOR (3*WIDTH)(R13), T3, T3
	VPXOR T3, A3, A3
	CRC32Q 24(SI), AX
	CRC32Q 24(R9), BX
	CRC32Q 24(R11), DX
	CRC32Q 32(SI), AX
	CRC32Q 32(R9), BX
	CRC32Q 32(R11), DX
	ADDQ $VECTORS, R13
	ADDQ $40, SI
	ADDQ $40, R9
	ADDQ $40, R11
	DECQ R10
	JNZ  round

	TESTQ R12, R12
	JZ   join

excess:
	CRC32Q (SI), AX
	CRC32Q (R9), BX
	CRC32Q (R11), DX
	ADDQ $8, SI
	ADDQ $8, R9
	ADDQ $8, R11
	DECQ R12
	JNZ  excess

	// All is moved to the end: the vectors' lanes, by what the last 4 WIDTH
	// octets of blocks are moved by, and the chains' CRCs.
join:
	VMOVQ AX, X11
	VMOVQ BX, X12
	VMOVQ DX, X13
	VPCLMULQDQ $0x00, X8, X11, X11
	VPCLMULQDQ $0x00, X9, X12, X12
	VPCLMULQDQ $0x00, X10, X13, X13
	VPXOR X12, X11, X11
	VPXOR X13, X11, X11
	VMOVQ X11, DX
	MOVEND(0, K)
	VPCLMULQDQ $0x00, K, A0, T0
	VPCLMULQDQ $0x11, K, A0, A0
	VPXOR T0, A0, A0
	MOVEND(1, K)
	VPCLMULQDQ $0x00, K, A1, T1
	VPCLMULQDQ $0x11, K, A1, A1
	VPXOR T1, A1, A1
	MOVEND(2, K)
	VPCLMULQDQ $0x00, K, A2, T2
	VPCLMULQDQ $0x11, K, A2, A2
	VPXOR T2, A2, A2
	MOVEND(3, K)
	VPCLMULQDQ $0x00, K, A3, T3
	VPCLMULQDQ $0x11, K, A3, A3
	VPXOR T3, A3, A3
	VPXOR A1, A0, A0
	VPXOR A3, A2, A2
	VPXOR A2, A0, A0
	REDUCE
	VMOVQ X0, BX
	VPEXTRQ $1, X0, R9
	XORQ R9, DX
	XORL AX, AX
	CRC32Q BX, AX
	CRC32Q DX, AX
	MOVQ R13, SI
	CMPQ CX, $(VECTORS+EVERY)
	JAE  piece
	VZEROUPPER
	NOTL AX
	TESTQ CX, CX
	JNZ  rest
	MOVL AX, ret+32(FP)
	RET

rest:
	MOVL AX, crc+0(FP)
	MOVQ SI, p_base+8(FP)
	MOVQ CX, p_len+16(FP)

short:
	JMP  ·updateChains(SB)
