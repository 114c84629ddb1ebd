package qp

import "github.com/rnicd/rnicd/mem"

// What tests of the packages above want of an engine, and nothing else.

// PretendSent lets a Write have been sent that waits for a Request before it.
func (q *Engine) PretendSent(id uint64) {
	q.requester.sent.push(sentRequest{id: id, op: OpWrite, signaled: true, flushStatus: Flushed})
}

// Fill completes a receive buffer.
func (q *Engine) Fill(id uint64) {
	q.completeRecv(CQE{ID: id, Op: OpRecv})
	q.publishRecvs()
}

// Sending is the request whose message is being cut; 0: none is.
func (q *Engine) Sending() Opcode {
	if !q.send.seg.Active() {
		return 0
	}
	return q.send.wr.Op
}

// Control names the control region.
func (q *Engine) Control() mem.STag { return q.ctrl.STag() }
