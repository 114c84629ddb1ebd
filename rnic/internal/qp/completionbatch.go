package qp

import "github.com/rnicd/rnicd/ddp"

// batchLen is how many completions are published together at most. About as many small messages as
// one segment of MTU 1500 has.
const batchLen = 16

// batch is completions of one half of a QueuePair that were earned and are published together when
// its driver has done with a segment: one barrier, and one look at whether somebody waits, for all.
// Their order is that of publish.
type batch struct {
	n     int
	quiet int64 // requests that were carried out and asked for no completion: reservations to be given back
	c     [batchLen]CQE
}

// next is the place of one more completion. The batch must not be full.
func (b *batch) next() *CQE {
	b.n++
	return &b.c[b.n-1]
}

func (b *batch) full() bool { return b.n == batchLen }

// publish makes all of it the application's.
func (b *batch) publish(cq *CQ) {
	if b.quiet > 0 {
		cq.unreserve(b.quiet)
		b.quiet = 0
	}
	if b.n > 0 {
		cq.pushAll(b.c[:b.n])
		b.n = 0
	}
}

// batchSend completes a request of the send queue with success, when the pull in hand ends.
// Driver's goroutine.
func (q *Engine) batchSend(wr *WQE, n uint32) {
	b := &q.send.batch
	if !wr.signaled() {
		b.quiet++
		return
	}
	if b.full() {
		q.publishSends()
	}
	c := b.next()
	*c = CQE{}
	c.ID, c.QP, c.Len, c.Op = wr.ID, q.Number, n, wr.Op
}

// publishSends: what the send queue has earned so far is the application's. Before anything else of
// it completes.
func (q *Engine) publishSends() { q.send.batch.publish(q.SendCQ) }

// completeRecv completes a receive buffer, when the segment in hand was taken. Driver's goroutine.
func (q *Engine) completeRecv(c CQE) { *q.nextRecv() = c }

func (q *Engine) nextRecv() *CQE {
	if q.recv.batch.full() {
		q.publishRecvs()
	}
	return q.recv.batch.next()
}

// filled is completeRecv of what most messages are: d, with success. What else is to be said of it
// is written to what it returns, at once.
func (q *Engine) filled(d *ddp.Delivered) *CQE {
	c := q.nextRecv()
	*c = CQE{} // and field by field: a literal is made elsewhere first, and then copied
	c.ID, c.QP, c.Len, c.Op = d.Buffer.ID, q.Number, d.Len, OpRecv
	return c
}

// publishRecvs publishes the receive buffers that were filled since the last time.
func (q *Engine) publishRecvs() {
	b := &q.recv.batch
	if b.n > 0 {
		q.posted.Add(-int32(b.n)) // first: a caller that has polled these may post the next
		b.publish(q.RecvCQ)
	}
}

// complete publishes a completion whose place was reserved by the posting call.
func (q *Engine) complete(to *CQ, wr *WQE, n uint32, st Status) {
	if st == Success && !wr.signaled() && wr.Op != OpRecv {
		to.unreserve(1)
		return
	}
	c := CQE{ID: wr.ID, QP: q.Number, Len: n, Op: wr.Op, Status: st}
	if wr.Op == OpRecv {
		q.posted.Add(-1) // first: a caller that has polled this may post the next
	}
	to.push(c)
}
