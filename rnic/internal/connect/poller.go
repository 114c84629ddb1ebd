package connect

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// Poller is what the connections of one Poller share: the epoch word their placements announce
// themselves with, and the packet buffers. All but the first two fields belong to the Poller's
// goroutine.
type PollerState struct {
	Poller  *stack.Poller
	Reader  *mem.Reader
	reserve mpa.Reserve
}

// NewPoller is what connections over p will have in common. r is of all placements on its
// goroutine.
func NewPollerState(p *stack.Poller, r *mem.Reader) *PollerState {
	b := p.Budget()
	return &PollerState{Poller: p, Reader: r, reserve: mpa.Reserve{Spare: b.Spare, Low: b.SpareInOrder, Partial: b.PartialMax}}
}
