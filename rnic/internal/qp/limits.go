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
	// pendingMin bounds messages that were placed but wait for earlier octets; large segments raise
	// it.
	pendingMin = 1024
	// terminateLenMax holds any Terminate message: 4 octets control, 2 length, 18 + 28 copied
	// headers.
	terminateLenMax = 64
)

// RingSize is what a ring of n entries takes: a power of two, at least 2 (mem.MPSC).
func RingSize(n int) int { return max(2, ceilPow2(n)) }

func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// rtrSTag goes into an RTR that has an STag: it names nothing, but adapters are known that refuse
// 0.
const rtrSTag = 1
