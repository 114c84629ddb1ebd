// FOLD moves the block A by the constants K and adds the block D. T is overwritten.
#define FOLD(K, A, T, D) \
	VPCLMULQDQ $0x00, K, A, T \
	VPCLMULQDQ $0x11, K, A, A \
	VPTERNLOGD $0x96, D, T, A

// MOVE moves the lanes of the block A to the end and adds them to SUM: OFF octets more than at R9.
// A and Z6 are overwritten, and Z7 with the constants.
#define MOVE(OFF, A, SUM) \
	VMOVDQU64 (foldConstants_end+64*OFF)(R9), Z7 \
	VPCLMULQDQ $0x00, Z7, A, Z6 \
	VPCLMULQDQ $0x11, Z7, A, A \
	VPTERNLOGD $0x96, Z6, A, SUM

// ADDUP ends a message: the lanes of SUM, all moved to the end, add up to one, AND is added to its
// last word, and the CRC of that, in AX, is the message's. BX, DX and the vectors are overwritten.
#define ADDUP(SUM, YSUM, XSUM, AND) \
	VEXTRACTI64X4 $1, SUM, Y1 \
	VPXOR Y1, YSUM, Y0 \
	VEXTRACTI128 $1, Y0, X1 \
	VPXOR X1, X0, X0 \
	VMOVQ X0, DX \
	VPEXTRQ $1, X0, BX \
	XORQ AND, BX \
	XORL AX, AX \
	CRC32Q DX, AX \
	CRC32Q BX, AX
