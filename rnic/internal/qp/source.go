package qp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// Source is work that waits in other queues than the engine's own, as in rings that another
// language or process fills. The engine asks it when its own ring is empty, on the goroutine that
// drives the connection; after Closed, under the lock of Flush. It must not block.
type Source interface {
	// SendsWait says whether FillSends has something to post. It is asked often.
	SendsWait() bool
	// FillSends and FillRecvs post what waits, by PostSend and PostRecv as far as there is room, or
	// one in r, by SendHere and RecvHere.
	FillSends(r *wq.Request)
	FillRecvs(r *wq.Request)
	// Written is told once after each Arrive or LeftEdge that has delivered Writes.
	Written()
}

// sendsWait says whether a work request can be taken.
func (q *Engine) sendsWait() bool {
	if q.ack.on {
		if again, full := q.sentRoom(); again || full {
			return again
		}
	}
	return q.SQ.Len() > 0 || q.Source != nil && q.Source.SendsWait()
}

// next makes r the next request of ring, SQ or RQ, or of the Source; false: there is none.
func (q *Engine) next(ring *mem.MPSC[wq.WQE], r *wq.Request) bool {
	if takeWork(ring, r) {
		return true
	}
	if q.Source == nil {
		return false
	}
	ring.Release() // of what was taken in this call of Pull
	r.Ready = false
	if ring == q.SQ {
		q.Source.FillSends(r)
	} else {
		q.Source.FillRecvs(r)
	}
	if !r.Ready && !takeWork(ring, r) {
		r.WQE = wq.WQE{} // whatever was left there is no request
		return false
	}
	return true
}
