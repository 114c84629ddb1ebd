package qp

import (
	"math"

	"github.com/rnicd/rnicd/mpa"
)

// written counts the octets that the peer's Writes have placed, for the Immediate Data that follows
// a Write and says of how many octets that was: the peer's word for it is no more than a claim.
//
// While everything comes in order it is the octets of the last Write. What was placed ahead of a
// gap counts from its Placement on; it may belong to a later Write.
type written struct {
	octets uint64
	over   bool   // all that was counted is of Writes that have been delivered
	ahead  uint64 // nothing was placed beyond
}

// place counts the octets of u, a segment of a Write.
func (w *written) place(u *mpa.ULPDU, payload int) {
	if !u.InOrder {
		w.ahead = max(w.ahead, u.End)
	} else if w.over {
		w.octets = 0 // the first segment of another Write
	}
	w.over = false
	w.octets += uint64(payload)
}

// deliver is told of a Write that is delivered, and where it ends.
func (w *written) deliver(end uint64) { w.over = w.ahead <= end }

// take is what counts for an Immediate Data message that is delivered, and no longer after it. end
// is where the message ends.
func (w *written) take(end uint64) uint32 {
	n := uint32(min(w.octets, math.MaxUint32))
	if w.ahead <= end {
		w.octets = 0
	}
	return n
}
