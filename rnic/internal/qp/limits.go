package qp

import "math/bits"

// Limits, as rnic's of the same names.
const (
	SGEMaxLimit      = 32
	InlineMaxLimit   = 1024
	SharedSGEMax     = 4
	ReadDepthULP     = 1<<14 - 1
	ReadDepthDefault = 32
)

const (
	// pendingMin bounds the messages that are placed and wait for earlier octets. With large
	// segments the bound is higher.
	pendingMin = 1024
	// terminateLenMax is the length of the longest Terminate: 4 octets control, 2 length, 18 + 28
	// copied headers, rounded up.
	terminateLenMax = 64
)

// RingSize is how many slots a ring for n entries has: a power of two, at least 2 (mem.MPSC).
func RingSize(n int) int { return max(2, ceilPow2(n)) }

func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// rtrSTag is the STag of an RTR message that has one. It names nothing, but it is not 0, which some
// adapters refuse.
const rtrSTag = 1
