package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
)

// batchLen is how many completions are published together at most: about as many as one segment of
// MTU 1500 has small messages.
const batchLen = 16

// batch holds the completions of one half of an Engine until its driver has finished with a
// segment. They are published together and in their order: one barrier, and one check whether the
// consumer waits, for all of them.
type batch struct {
	n     int
	quiet int64 // reservations to give back: requests that succeeded and were not signaled
	c     [batchLen]wq.CQE
}

// next is the place of one more completion. The batch must not be full.
func (b *batch) next() *wq.CQE {
	b.n++
	return &b.c[b.n-1]
}

func (b *batch) full() bool { return b.n == batchLen }

// publish gives the batch to the application.
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

// completeSend completes a work request that needs no Response, of n octets, whose last segment was
// cut. If Requests before it are outstanding it waits for them in sent.
func (q *Engine) completeSend(wr *wq.WQE, n uint32) {
	a := &q.requester
	if q.ack.on {
		a.sent.at(q.ack.cursor - a.sent.head).done = true
		q.ack.cursor++
		q.settle()
		return
	}
	if a.sent.count > 0 {
		a.sent.push(sentRequest{id: wr.ID, n: n, op: wr.Op, signaled: wr.Signaled(), done: true,
			flushStatus: wq.Flushed})
		return
	}
	q.batchSend(wr, n)
}

// failed completes a work request that could not be carried out, after those before it.
func (q *Engine) failed(wr *wq.WQE, st wq.Status) {
	a := &q.requester
	if q.ack.on {
		a.sent.at(q.ack.cursor - a.sent.head).flushStatus = st
		return
	}
	if a.sent.count > 0 {
		a.sent.push(sentRequest{id: wr.ID, op: wr.Op, flushStatus: st})
		return
	}
	q.publishSends()
	q.complete(q.SendCQ, wr, 0, st)
}

// batchSend completes a request of the send queue with success at the end of this Pull.
func (q *Engine) batchSend(wr *wq.WQE, n uint32) {
	b := q.send.batch
	if !wr.Signaled() {
		b.quiet++
		return
	}
	if b.full() {
		q.publishSends()
	}
	c := b.next()
	*c = wq.CQE{}
	c.ID, c.QP, c.Len, c.Op = wr.ID, q.Number, n, wr.Op
}

// settle completes, in order, what the peer has accepted and answered, in acknowledged mode.
func (q *Engine) settle() {
	k, a := &q.ack, &q.requester
	wasFull, n := a.sent.full(), a.sent.count
	for a.sent.count > 0 && a.sent.head != k.cursor {
		w := a.sent.at(0)
		if !w.done && (w.op.IsRequest() || int32(k.at(a.sent.head).number-k.acked) >= 0) {
			break
		}
		q.batchSent(w)
		a.sent.pop()
	}
	if a.sent.count != n && (wasFull || q.send.held || q.State() != wq.RTS) {
		q.effects |= EffectSend
	}
}

// batchSent completes a request that was in sent with success, with what has come in this call.
func (q *Engine) batchSent(w *sentRequest) {
	b := q.send.batch
	if !w.signaled {
		b.quiet++
		return
	}
	if b.full() {
		q.publishSends()
	}
	c := b.next()
	*c = wq.CQE{}
	c.ID, c.QP, c.Len, c.Op, c.Original = w.id, q.Number, w.n, w.op, w.original
}

// publishSends publishes the batch of the send queue. It comes before anything else of that queue
// is published, so that completions stay in order.
func (q *Engine) publishSends() { q.send.batch.publish(q.SendCQ) }

// completeRecv completes a receive buffer at the end of this Arrive or LeftEdge.
func (q *Engine) completeRecv(c wq.CQE) { *q.nextRecv() = c }

// nextRecv is the place of the next completion of a receive buffer.
func (q *Engine) nextRecv() *wq.CQE {
	if q.recv.batch.full() {
		q.publishRecvs()
	}
	return q.recv.batch.next()
}

// filled completes the receive buffer of d with success. A caller that has more to say writes it to
// the result at once.
func (q *Engine) filled(d *ddp.Delivered) *wq.CQE {
	c := q.nextRecv()
	*c = wq.CQE{} // then field by field: a literal would be built elsewhere and copied
	c.ID, c.QP, c.Len, c.Op = d.Buffer.ID, q.Number, d.Len, wq.OpRecv
	return c
}

// publishRecvs publishes the batch of the receive queue, after what the peer has acknowledged: one
// that sees its answer may rely on it that the request is complete.
func (q *Engine) publishRecvs() {
	if q.ack.on {
		q.publishSends()
	}
	b := q.recv.batch
	if b.n > 0 {
		q.posted.Add(-int32(b.n)) // first: an application that has polled these may post as many
		b.publish(q.RecvCQ)
	}
}

// complete publishes one completion at once. The posting call has reserved its entry.
func (q *Engine) complete(to *CQ, wr *wq.WQE, n uint32, st wq.Status) {
	if st == wq.Success && !wr.Signaled() && wr.Op != wq.OpRecv {
		to.unreserve(1)
		return
	}
	c := wq.CQE{ID: wr.ID, QP: q.Number, Len: n, Op: wr.Op, Status: st}
	if st != wq.Success {
		c.Terminate = q.failedBy()
	}
	if wr.Op == wq.OpRecv {
		q.posted.Add(-1) // first: an application that has polled this may post another
	}
	to.Push(c)
}
