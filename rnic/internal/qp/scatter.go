package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
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
func (q *Engine) postBuffer(w *WQE) {
	r := &q.recv
	if w.More == 0 {
		r.sendQ.Post(ddp.RecvBuffer{ID: w.ID, STag: w.Local.STag, TO: w.Local.Offset, Len: w.Local.Length})
		return
	}
	list := r.list[:w.More]
	popFollowing(q.RQ, w, list, nil)
	ranges := append(r.ranges[:0], rangeOf(w.Local))
	for _, sge := range list {
		ranges = append(ranges, rangeOf(sge))
	}
	r.sendQ.PostList(w.ID, ranges)
}

// readBuffer copies the first octets of a message that was just delivered, across the ranges of its
// buffer. False: the buffer is no longer registered. Between Enter and Exit of the Reader.
func (q *Engine) readBuffer(d *ddp.Delivered, dst []byte) bool {
	whole := [1]ddp.Range{{STag: d.Buffer.STag, Len: d.Buffer.Len, TO: d.Buffer.TO}}
	list := d.List
	if list == nil {
		list = whole[:]
	}
	for _, r := range list {
		n := min(len(dst), int(r.Len))
		if n == 0 {
			continue
		}
		b, verdict := q.Table.Check(q.Domain, q.Stream, r.STag, r.TO, n, mem.LocalWrite)
		if verdict != mem.CheckOK {
			return false
		}
		dst = dst[copy(dst, b):]
	}
	return len(dst) == 0
}
