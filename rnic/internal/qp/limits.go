package qp

import (
	"math/bits"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
)

// Limits.
const (
	SGEMaxLimit      = 32
	InlineMaxLimit   = 1024
	SharedSGEMax     = 4
	ReadDepthDefault = 32
)

const (
	// PendingMin bounds the messages that are placed and wait for earlier octets. With large
	// segments the bound is higher.
	PendingMin = 1024
	// pendingFull is how many engines of one goroutine may have so many at the same time, three
	// quarters of them those of one peer. Octets ahead of a gap are refused to those that come too
	// late, and their peers send them again.
	pendingFull = 256
	// servicesKept is how many are kept for engines that go into service next. Totals.ServicesMade
	// counts those that had to be made because none was kept.
	servicesKept = 256
	// recvsKept is how many receive buffers, with lists of SharedSGEMax ranges, one that is kept has
	// room for at most: 15 KiB.
	recvsKept  = 128
	fpduLenMin = mpa.HeaderLen + ddp.TaggedLen + mpa.CRCLen
	roomSpare  = 64 // frames that one segment may complete beside its own: parts of them were held
	// of these, those that the segment, or what it joins, has the beginning or the end of
	roomEnds = 4
	// TerminateLenMax is the length of the longest Terminate: 4 octets control, 2 length, 18 + 28
	// copied headers, rounded up.
	TerminateLenMax = 64
)

// pendingInOrder is how many messages may wait for Delivery where octets come in order: each is
// delivered before the next is placed.
const pendingInOrder = 64

// pendingInOrderFull is how many engines that share memory may have that many at the same time.
const pendingInOrderFull = 4

// pendingMax is how many messages of an engine may wait for earlier octets.
func pendingMax(emss int) int { return max(PendingMin, 2*(emss/fpduLenMin+roomSpare)) }

// RingSize is how many slots a ring for n entries has: a power of two, at least 2 (mem.MPSC).
func RingSize(n int) int { return max(2, ceilPow2(n)) }

func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// RTRSTag is the STag of an RTR message that has one. It names nothing, but it is not 0, which some
// adapters refuse.
const RTRSTag = 1
