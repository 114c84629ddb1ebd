package qp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// What only tests of other packages use.

// Promised is the number of entries that are reserved, including those that wait to be polled.
func (q *CQ) Promised() int64 { return q.reserved.Load() }

// IsArmed says whether the consumer waits for the completions that Arm(how) names.
func (q *CQ) IsArmed(how uint32) bool { return q.armed.Load() == how }

// PretendSent adds a Write that was sent and waits for a Request before it.
func (q *Engine) PretendSent(id uint64) {
	q.requester.sent.push(sentRequest{id: id, op: wq.OpWrite, signaled: true, flushStatus: wq.Flushed})
}

// Sending is the opcode of the request whose message is being cut; 0: there is none.
func (q *Engine) Sending() wq.Opcode {
	if !q.send.seg.Active() {
		return 0
	}
	return q.send.wr.Op
}

// ReadsWaiting is how many Requests of the peer are not answered yet.
func (q *Engine) ReadsWaiting() int { return int(q.respond.answers.count) }

// Reported says whether an error has ended the stream that one end has reported to the other.
func (q *Engine) Reported() bool { return q.recv.reported }

// RecvBegun is how many receive buffers hold octets of messages that are not delivered.
func (q *Engine) RecvBegun() int { return q.recv.sendQ.Begun() }

// Staged is how many octets wait for more to share their segment with.
func (q *Engine) Staged() int { return len(q.send.staged) }

// Control names the control region.
func (q *Engine) Control() mem.STag { return q.control.region.STag() }
