package qp

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// deliverTo delivers the messages that end at or before edge, in order. Between Enter and Exit of
// the Reader.
func (q *Engine) deliverTo(edge uint64) {
	r := &q.recv
	r.delivered = edge
	for r.ddp.Deliver(edge, &r.deliv) {
		q.deliver(&r.deliv)
	}
}

// deliver acts on one message, as its opcode and its queue say.
func (q *Engine) deliver(d *ddp.Delivered) {
	r := &q.recv
	_, op := rdmap.ParseControl(d.Header.ULP)
	switch {
	case op == rdmap.OpReadResponse:
		q.deliverResponse(d)
	case d.Header.Tagged:
		q.accept()
		r.writes++
		r.written.deliver(d.End)
		if r.written.octets > 0 { // an empty one changes no memory: start-up's, or one that wakes
			r.filledWrites++
		}
	case d.Header.QN == rdmap.QNRead:
		q.deliverRequest(d, op)
	case d.Header.QN == rdmap.QNAtomic:
		q.deliverAtomicResponse(d)
	case d.Header.QN == rdmap.QNSend && r.rtr.hidden:
		r.rtr.hidden = false
		r.rtr.sends++
		q.accept()
	case d.Header.QN == rdmap.QNSend && op.Invalidates():
		q.deliverInvalidate(d, op)
	case d.Header.QN == rdmap.QNSend && op.Immediate():
		q.deliverImmediate(d, op)
	case d.Header.QN == rdmap.QNSend:
		q.accept()
		r.messages++
		c := q.filled(d)
		c.Solicited = op.Solicited()
		if op.HasImmediate() {
			c.WithImmediate, c.BesideSend = true, true
			binary.BigEndian.PutUint32(c.Immediate[:4], d.Header.ULP32)
		}
	case op == rdmap.OpTerminate:
		r.terminated, r.terminate = true, int(d.Len)
		r.ddp.Disable() // the peer's stream is over
	}
}

// deliverInvalidate delivers a Send with Invalidate. If the STag cannot be invalidated by this
// stream the stream ends, and the buffer completes as Flushed (RFC 5040 section 5.3). No placement
// through the STag can be under way: what this stream writes through it comes before the message,
// and is placed by this goroutine.
func (q *Engine) deliverInvalidate(d *ddp.Delivered, op rdmap.Opcode) {
	r := &q.recv
	stag := mem.STag(d.Header.ULP32)
	c := wq.CQE{ID: d.Buffer.ID, QP: q.Number, Op: wq.OpRecv, Status: wq.Flushed}
	if q.Table.Invalidate(q.Domain, q.Stream, stag) == mem.CheckOK {
		q.accept()
		r.messages++
		c.Len, c.Status, c.Invalidated, c.Solicited = d.Len, wq.Success, stag, op.Solicited()
	} else {
		if r.fault == nil { // the first error is the one to report
			r.fault = &opcodeError{cause: rdmap.CauseCannotInvalidate, header: d.Header,
				segmentLen: d.SegmentLen()}
		}
		c.Terminate = (&TerminateError{Cause: r.fault}).number()
		r.ddp.Disable()
	}
	q.completeRecv(c)
}

// deliverImmediate delivers Immediate Data (RFC 7306 section 6.3). The message uses a receive
// buffer up without a look at it: the octets are in the completion.
func (q *Engine) deliverImmediate(d *ddp.Delivered, op rdmap.Opcode) {
	r := &q.recv
	q.accept()
	r.messages++
	c := q.filled(d)
	c.Immediate, c.Solicited, c.WithImmediate = d.Aside, op.Solicited(), true
	c.Written = r.written.take(d.End)
}
