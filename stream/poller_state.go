package stream

import (
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// pollerState is what the connections of one Poller share: its pool, what of that waits for
// readers, and the notes on Bufs that wait after a gap. All but the counters belongs to the
// Poller's goroutine.
type pollerState struct {
	poller *stack.Poller
	pool   *mem.Pool
	room   int // payload octets a Buf holds, about
	kept   int // Bufs that wait for a reader or for a gap to fill
	budget stack.Budget
	pieces []piece // by Buf
	n      counters

	stepped uint64 // runs that a search for a place among pieces has passed
}

// Windows promise more than a pool has, as everywhere. When many readers are slow at once, windows
// shrink. Octets in order beyond the share that readers have (stack.Budget) are copied out of their
// Bufs: octets that were promised room are not refused, or slow readers would stop the others.
const (
	pressureSegments = 16 // what a window shrinks to when too many Bufs wait (stack.Budget.Squeeze)
	framing          = 64
	spillMin         = 64 << 10
)

type pollerStateKey struct{}

// pollerStateOf is what p has. Any goroutine.
func pollerStateOf(p *stack.Poller) *pollerState {
	if ps, ok := p.Locals().Load(pollerStateKey{}); ok {
		return ps.(*pollerState)
	}
	pool := p.Pool()
	ps := &pollerState{
		poller: p, pool: pool, room: pool.Stride() - pool.Headroom() - framing,
		budget: p.Budget(), pieces: make([]piece, pool.Size()),
	}
	first, _ := p.Locals().LoadOrStore(pollerStateKey{}, ps)
	return first.(*pollerState)
}

// free gives a Buf that was kept back.
func (ps *pollerState) free(b mem.Buf) {
	ps.kept--
	ps.pool.Free(b)
}

// windowMax is the largest window that one connection may have.
func (ps *pollerState) windowMax() int { return max(ps.budget.Window*ps.room, sendBufferMin) }

// slotsFor is how many slots a window takes when each two neighbouring Bufs hold one Buf's worth at
// least.
func (ps *pollerState) slotsFor(window int) int { return powerOfTwo(2*window/ps.room + slotsSpare) }

const slotsSpare = 16

// Counters of all connections of a Poller. All grow.
type Counters struct {
	RefusedSlots   uint64 // segments refused: too many Bufs of one connection wait
	RefusedPool    uint64 // segments after a gap refused: too many Bufs of the pool wait for readers
	Spilled        uint64 // segments copied out of their Bufs for the same reason
	Merged         uint64 // small segments copied together
	AfterClose     uint64 // connections reset by octets that came after Close (RFC 9293 SHLD-3)
	UnreadAtClose  uint64 // connections reset by Close with octets unread (SHLD-3)
	FlushTimeouts  uint64 // connections reset because nothing moved after Close
	AcceptOverflow uint64 // connections reset because Accept was too slow for the backlog
	WindowGrown    uint64

	// connections given up because the peer did not close its half in time after Close
	FinWait2Timeouts uint64
}

type counters struct {
	refusedSlots, refusedPool, spilled, merged, afterClose, unreadAtClose, flushTimeouts,
	acceptOverflow, windowGrown atomic.Uint64

	finWait2Timeouts atomic.Uint64
}

// CountersOf gives those of p's streams. Any goroutine.
func CountersOf(p *stack.Poller) Counters {
	n := &pollerStateOf(p).n
	return Counters{
		RefusedSlots: n.refusedSlots.Load(), RefusedPool: n.refusedPool.Load(), Merged: n.merged.Load(),
		Spilled:    n.spilled.Load(),
		AfterClose: n.afterClose.Load(), UnreadAtClose: n.unreadAtClose.Load(),
		FlushTimeouts:  n.flushTimeouts.Load(),
		AcceptOverflow: n.acceptOverflow.Load(), WindowGrown: n.windowGrown.Load(),
		FinWait2Timeouts: n.finWait2Timeouts.Load(),
	}
}
