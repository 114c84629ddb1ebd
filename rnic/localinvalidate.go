package rnic

import (
	"errors"

	"github.com/rnicd/rnicd/mem"
)

// errLocalInvalidate is the end of a connection for a Local Invalidate that cannot be.
var errLocalInvalidate = errors.New("rnic: Local Invalidate of an STag that is not valid, or that is not this queue pair's alone")

// PostLocalInvalidate queues the end of wr.LocalSTag, a region or a bound window of this end: in its turn, when all that was
// posted before has been sent and before anything behind it is, the peer cannot reach anything through it any more. Nothing goes
// to the peer. It may name what a peer's Send with Invalidate may (RFC 5040 section 8.1.1): an STag with remote rights that was
// made For this QueuePair, for nobody else can be placing through that. Of those of several QueuePairs, MemoryRegion.Revoke and
// Window.Unbind are the end.
//
// What was posted before and sends from the STag is not harmed: its octets have been copied by then. A Read into it that is under way
// is, unless wr has Fence: its Response finds no sink, and ends the connection. So do a Read of the peer's, and a receive
// buffer, that the STag was still needed for, and what is posted behind and sends from it. A region stays registered, for Revalidate or
// Deregister; windows onto it end with it; a window can be bound again.
//
// The Completion tells Success, or LocalOperation for an STag that it may not name, or is not valid (any more): as with other local
// errors that is the end of the connection, and all behind it is Flushed. When and by whom: as PostSend.
func (q *QueuePair) PostLocalInvalidate(wr WorkRequest) error {
	return q.post(OpLocalInvalidate, &wr)
}

// invalidateHere carries out the Local Invalidate in hand. Driver's goroutine, which is the only one that places for this stream:
// when it returns no octet is placed through the STag any more.
func (q *QueuePair) invalidateHere(l *link) bool {
	s := &q.send
	if q.adapter.table.Invalidate(q.opt.PD.id, q.stream, s.wr.stag()) != mem.CheckOK {
		q.localError(l, LocalOperation, errLocalInvalidate)
		return false
	}
	q.said(&s.wr, 0)
	s.wr = wqe{}
	return true
}

// stag is what a Local Invalidate names.
func (w *wqe) stag() mem.STag { return w.local.STag }
