package qp

import (
	"github.com/rnicd/rnicd/mem"
)

// invalidateHere carries out the Local Invalidate in hand. Driver's goroutine, which is the only
// one that places for this stream: when it returns no octet is placed through the STag any more.
func (q *Engine) invalidateHere() bool {
	s := &q.send
	if q.Table.Invalidate(q.Domain, q.Stream, s.wr.stag()) != mem.CheckOK {
		q.localError(LocalOperation, ErrLocalInvalidate)
		return false
	}
	q.completeSend(&s.wr, 0)
	s.wr = WQE{}
	return true
}

// stag is what a Local Invalidate names.
func (w *WQE) stag() mem.STag { return w.Local.STag }
