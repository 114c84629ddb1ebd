package qp

import "github.com/rnicd/rnicd/mem"

// What a peer may do at all, as rnic.PeerAccess.
const (
	PeerWrites uint32 = 1 << iota
	PeerReads
	PeerAtomics
)

// Permit has the peer do no more than allowed, a set of PeerWrites, PeerReads and PeerAtomics. Any
// goroutine, in any state.
func (q *Engine) Permit(allowed uint32) { q.refused.Store(^allowed) }

// needs is the right that memory must grant for what the peer wants to do: none has Refused.
func (q *Engine) needs(right mem.Access, what uint32) mem.Access {
	if q.refused.Load()&what != 0 {
		return right | mem.Refused
	}
	return right
}
