package rnic

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// pollerState is what the connections of one Poller share: the epoch word their placements announce themselves with, and the
// packet buffers. All but the first two fields belong to the Poller's goroutine.
type pollerState struct {
	poller  *stack.Poller
	reader  *mem.Reader
	reserve mpa.Reserve
}

func newPollerState(p *stack.Poller, r *mem.Reader) *pollerState {
	b := p.Budget()
	return &pollerState{poller: p, reader: r, reserve: mpa.Reserve{Spare: b.Spare, Low: b.SpareInOrder, Partial: b.PartialMax}}
}
