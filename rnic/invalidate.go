package rnic

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// PostSendInvalidate is PostSend of a message that also gives the peer's STag wr.RemoteSTag back: when the peer has received
// it, nothing can be placed or read through that STag any more, and the peer's Completion says so. The peer must have
// granted it to this QueuePair alone; otherwise its Terminate ends the connection. A Read or an atomic through the STag that was
// posted before is not waited for, and ends the connection if it is too late: set wr.Fence. In the RTS state; any goroutine.
func (q *QueuePair) PostSendInvalidate(wr WorkRequest) error {
	return q.post(OpSendInvalidate, &wr)
}

// deliverImmediate delivers Immediate Data (RFC 7306 section 6.3), which stands in the buffer it took as any message does. One of
// another length is none, and its buffer is flushed.
func (q *QueuePair) deliverImmediate(d *ddp.Delivered, op rdmap.Opcode) {
	r := &q.recv
	c := Completion{ID: d.Buffer.ID, QP: q.num, Op: OpRecv, Status: Flushed}
	cause := rdmap.CauseOperation // DECISIONS 39
	if d.Len == rdmap.ImmediateLen {
		if q.readBuffer(d, c.Immediate[:]) {
			r.messages++
			c.Len, c.Status, c.Solicited, c.WithImmediate = d.Len, Success, op.Solicited(), true
		} else {
			cause, c.Status = rdmap.CauseLocal, LocalProtection // the buffer was revoked since
		}
	}
	if c.Status != Success {
		if r.fault == nil {
			r.fault = &opcodeError{cause: cause, header: d.Header, segmentLen: d.SegmentLen()}
		}
		r.ddp.Disable()
	}
	q.received(c)
}

// deliverInvalidate delivers a Send with Invalidate, or ends the stream (RFC 5040 section 5.3): a message whose STag is not
// this stream's own is no message, and its buffer is flushed. What was written through the STag stands before the message
// in the stream, and this is the goroutine that places: nothing can be under way.
func (q *QueuePair) deliverInvalidate(d *ddp.Delivered, op rdmap.Opcode) {
	r := &q.recv
	stag := mem.STag(d.Header.ULP32)
	c := Completion{ID: d.Buffer.ID, QP: q.num, Op: OpRecv, Status: Flushed}
	if q.adapter.table.Invalidate(q.opt.PD.id, q.stream, stag) == mem.CheckOK {
		r.messages++
		c.Len, c.Status, c.Invalidated, c.Solicited = d.Len, Success, stag, op.Solicited()
	} else {
		if r.fault == nil { // the first error is the one to report
			r.fault = &opcodeError{cause: rdmap.CauseCannotInvalidate, header: d.Header, segmentLen: d.SegmentLen()}
		}
		r.ddp.Disable()
	}
	q.received(c)
}
