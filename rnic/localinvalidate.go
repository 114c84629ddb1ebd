package rnic

import (
	"errors"

	"github.com/rnicd/rnicd/mem"
)

// errLocalInvalidate is the end of a connection for a Local Invalidate that cannot be.
var errLocalInvalidate = errors.New("rnic: Local Invalidate of an STag that is not valid, or that is not this queue pair's alone")

// invalidateHere carries out the Local Invalidate in hand. Driver's goroutine, which is the only one that places for this stream:
// when it returns no octet is placed through the STag any more.
func (q *engine) invalidateHere() bool {
	s := &q.send
	if q.table.Invalidate(q.domain, q.stream, s.wr.stag()) != mem.CheckOK {
		q.localError(LocalOperation, errLocalInvalidate)
		return false
	}
	q.completeSend(&s.wr, 0)
	s.wr = wqe{}
	return true
}

// stag is what a Local Invalidate names.
func (w *wqe) stag() mem.STag { return w.local.STag }
