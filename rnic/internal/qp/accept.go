package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// What a receiver does in acknowledged mode before Placement: it acts on Reliability Messages, says
// that it is not ready for a message, and drops requests from then on until the peer resumes.
// Responses and Reliability Messages are never dropped, so that neither direction waits for the
// other.

// aside says whether u, a segment with header h, is not to be placed in acknowledged mode. One that
// it does not understand is, for judge to say why it cannot be.
func (q *Engine) aside(u *mpa.ULPDU, h *ddp.Header) bool {
	r, k := &q.recv, &q.ack
	if rdmap.IsReliability(h, r.version) {
		r.op = rdmap.OpReliability
		if !q.hear(u, h) && r.fault == nil {
			r.fault = &opcodeError{cause: rdmap.CauseOperation, header: *h, segmentLen: u.Len,
				what: errReliability}
			r.ddp.Disable()
		}
		return true
	}
	if !k.dropping && (h.Tagged || h.QN != rdmap.QNSend || h.MO != 0 || r.sendQ.Posted() > 0) {
		return false // judge checks it
	}
	op, _, ok := q.check(h)
	switch {
	case !ok:
		return false
	case !op.IsRequest():
		return false
	case !k.dropping:
		if q.ready(h.MSN) {
			return false
		}
		k.dropping = true
		k.due |= dueNotReady
		q.effects |= EffectSend
	}
	r.op = rdmap.OpReliability // no Write's
	return true
}

// ready says whether the message of msn has a receive buffer, or is none that could have one.
func (q *Engine) ready(msn uint32) bool {
	s := &q.recv.sendQ
	if q.recv.rtr.awaited || s.Posted() > 0 || s.Next() != msn {
		return true
	}
	if q.recv.shared {
		return !q.takeShared(msn) || s.Posted() > 0
	}
	q.postBuffers()
	return s.Posted() > 0
}

// hear acts on a Reliability Message, which came in order. False: it cannot be.
func (q *Engine) hear(u *mpa.ULPDU, h *ddp.Header) bool {
	k := &q.ack
	var body [ddp.UntaggedLen + rdmap.ReliabilityLen]byte
	if u.Len != len(body) || h.MSN != k.inMSN {
		return false
	}
	k.inMSN++
	n := 0
	for _, p := range u.Pieces {
		n += copy(body[n:], p)
	}
	m, ok := rdmap.ParseReliability(body[ddp.UntaggedLen:n])
	if !ok {
		return false
	}
	if m.Kind != rdmap.Resume {
		return q.heardOf(&m)
	}
	ok = k.dropping && m.Count == k.accepted
	k.dropping = false
	return ok
}
