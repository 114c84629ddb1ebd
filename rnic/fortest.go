package rnic

import "github.com/rnicd/rnicd/mem"

// What tests of the packages above want of an engine, and nothing else.

// pretendSent lets a Write have been sent that waits for a Request before it.
func (q *engine) pretendSent(id uint64) {
	q.requester.sent.push(sentRequest{id: id, op: OpWrite, signaled: true, flushStatus: Flushed})
}

// fill completes a receive buffer.
func (q *engine) fill(id uint64) {
	q.completeRecv(Completion{ID: id, Op: OpRecv})
	q.publishRecvs()
}

// sending is the request whose message is being cut; 0: none is.
func (q *engine) sending() Opcode {
	if !q.send.seg.Active() {
		return 0
	}
	return q.send.wr.op
}

// control names the control region.
func (q *engine) control() mem.STag { return q.ctrl.STag() }
