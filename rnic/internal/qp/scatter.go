package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
)

// postBuffers gives newly posted receive buffers to Placement, unless it is still open whose the
// first one is (rtr.go).
func (q *Engine) postBuffers() {
	if q.recv.rtr.awaited {
		return
	}
	q.fillRecvs()
	for q.RQ.Take(&q.recv.entry) {
		q.postBuffer(&q.recv.entry)
	}
	q.RQ.Release()
}

// postBuffer gives Placement a receive buffer that was just taken from RQ, with the ranges that
// follow it there. There is room: PostRecv has counted.
func (q *Engine) postBuffer(w *wq.WQE) {
	r := &q.recv
	if w.More == 0 {
		r.sendQ.Post(ddp.RecvBuffer{ID: w.ID, STag: w.Local.STag, TO: w.Local.Offset,
			Len: w.Local.Length})
		return
	}
	list := r.ranges[:1+w.More]
	list[0] = w.Local
	popFollowing(q.RQ, w, list[1:], nil)
	r.sendQ.PostList(w.ID, list)
}
