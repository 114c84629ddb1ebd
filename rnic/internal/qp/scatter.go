package qp

import "github.com/rnicd/rnicd/ddp"

// postBuffers gives newly posted receive buffers to Placement, unless it is still open whose the
// first one is (rtr.go). There is room: PostRecv has counted.
func (q *Engine) postBuffers() {
	r := &q.recv
	if r.rtr.awaited {
		return
	}
	for w := &r.buffer; q.next(q.RQ, w); {
		if w.More == 0 {
			r.sendQ.Post(ddp.RecvBuffer{ID: w.ID, STag: w.Local.STag, TO: w.Local.Offset,
				Len: w.Local.Length})
			continue
		}
		r.ranges[0] = w.Local
		r.sendQ.PostList(w.ID, r.ranges[:1+w.More])
	}
	q.RQ.Release()
}
