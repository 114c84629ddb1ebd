package qp

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// The control region is memory of the Engine's own, which DDP places messages of RDMAP into:
//
//	Terminate | Requests of the peer, one slot each | Atomic Responses, one slot each
const (
	requestsAt   = TerminateLenMax
	requestSlot  = 64 // octets; the longest Request has 52
	responseSlot = 16 // octets; an Atomic Response has 12
)

// readDepths are the depths to make room for: of the peer's Requests, and of this end's.
type readDepths struct{ ird, ord int }

// readDepth is the depth to make room for where n is wanted.
func readDepth(n int) int {
	if n == mpa.DepthULP {
		return ReadDepthDefault
	}
	return n
}

func (d readDepths) requestsMax() int { return max(1, d.ird) } // one for an RTR message

func (d readDepths) responsesAt() int { return requestsAt + requestSlot*d.requestsMax() }

func (d readDepths) controlLen() int { return d.responsesAt() + responseSlot*d.ord }

// control is an Engine's control region. few is its octets where they suffice: no Reads and
// atomics.
type control struct {
	region   mem.RegionRoom
	prepared bool
	depths   readDepths
	few      [requestsAt + requestSlot]byte
}

// Prepare registers the control region, for the depths that are wanted. Before Start. After an
// error it may be tried again.
func (q *Engine) Prepare(ird, ord int) error {
	c, want := &q.control, readDepths{readDepth(ird), readDepth(ord)}
	octets := c.few[:]
	if n := want.controlLen(); n > len(octets) {
		octets = make([]byte, n)
	}
	err := q.Table.RegisterIn(&c.region, q.Domain, octets,
		mem.RegionOptions{Access: mem.LocalWrite, Stream: q.Stream, Fresh: true})
	if err != nil {
		return err
	}
	c.prepared, c.depths = true, want
	return nil
}
