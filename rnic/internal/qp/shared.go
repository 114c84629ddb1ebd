package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
)

// Shared is what engines that one goroutine drives have in common, so that each takes little while
// its octets come in order.
type Shared struct {
	reserve mpa.Reserve // packet buffers that MPA must leave to others
	totals  Totals
	pieces  [][]byte           // of the ULPDU in hand
	pending *ddp.PendingMemory // messages placed ahead of a gap
	bufsMax int                // of the rooms of services

	services []*service // given back by engines that are over

	// Of the engine that is called.
	sends, recvs batch
	parts        [1 + SGEMaxLimit][]byte // gatherRoom.parts
	ranges       [SGEMaxLimit]wq.SGE     // recvHalf.ranges
	targets      [SGEMaxLimit][]byte     // of recvHalf.ddp
}

// NewShared makes what engines share whose segments have up to emssMax octets, and which keep up to
// bufsMax Bufs for reassembly each.
func NewShared(emssMax, bufsMax int, reserve mpa.Reserve) *Shared {
	return &Shared{
		reserve: reserve, pieces: make([][]byte, mpa.PiecesMax(bufsMax)), bufsMax: bufsMax,
		pending: ddp.NewPendingMemory(pendingMax(emssMax), pendingFull),
	}
}

// NewSharedInOrder is NewShared of engines whose octets come in order, from a pool that has enough
// for all: few of their messages ever wait for Delivery.
func NewSharedInOrder(bufsMax int) *Shared {
	return &Shared{
		pieces: make([][]byte, mpa.PiecesMax(bufsMax)), bufsMax: bufsMax,
		pending: ddp.NewPendingMemory(pendingInOrder, pendingInOrderFull),
	}
}

// count is where an engine counts besides its own. s may be nil: somewhere.
func (s *Shared) count() *Totals {
	if s == nil {
		return &Totals{}
	}
	return &s.totals
}

// Totals are what the engines have done, and what their Reserve refused.
func (s *Shared) Totals() (Totals, mpa.Refusals) { return s.totals, s.reserve.Refusals }

// Reserve is what its engines leave free in the packet buffers' pool.
func (s *Shared) Reserve() *mpa.Reserve { return &s.reserve }
