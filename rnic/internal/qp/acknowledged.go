package qp

import (
	"errors"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rdmap"
)

// Requests of this end in acknowledged mode. Each enters requester.sent when it is taken from its
// ring, with what it needs to be sent again, and leaves it when it completes.

// keptRequest is a request in requester.sent. Its list or inline octets are in
// acknowledging.entries.
type keptRequest struct {
	wqe    wq.WQE
	number uint32 // of its message; of one that has none, of the next
	entry  uint32 // place of its first entry, free-running
}

// startAcknowledging makes room for requests. numbered is how many messages of start-up come before
// them.
func (q *Engine) startAcknowledging(numbered uint32) {
	k := &q.ack
	if q.requester.sent.slots == nil { // no Reads and atomics
		q.requester.sent.init(q.SendDepth)
	}
	n := len(q.requester.sent.slots)
	k.on, k.kept, k.next = true, make([]keptRequest, n), numbered
	k.inMSN, k.outMSN = 1, 1
	each := EntriesFor(1, q.SGEMax, q.InlineMax) - 1 // 1 at least, as masks need
	k.entries = make([]wq.WQE, ceilPow2(n*each))
}

func (k *acknowledging) entryAt(i uint32) *wq.WQE { return &k.entries[i&uint32(len(k.entries)-1)] }

// popAcknowledged is popRequest in acknowledged mode.
func (q *Engine) popAcknowledged() bool {
	k, a, s := &q.ack, &q.requester, &q.send
	switch again, full := q.sentRoom(); {
	case again:
		k.again(&s.wr)
		s.size = messageLen(&s.wr)
		return true
	case full || !q.next(q.SQ, &s.wr):
		return false
	}
	wr := &s.wr
	s.size = messageLen(wr)
	n := s.size
	switch {
	case wr.Op.IsAtomic():
		n = AtomicLen
	case wr.Op == wq.OpImmediate:
		n = rdmap.ImmediateLen
	}
	*k.at(k.cursor) = keptRequest{wqe: wr.WQE, number: k.next, entry: k.entry}
	k.keep(wr)
	if isMessage(&wr.WQE) {
		k.next++
	}
	a.sent.push(sentRequest{id: wr.ID, n: n, op: wr.Op, signaled: wr.Signaled(),
		flushStatus: wq.Flushed})
	return true
}

// isMessage says whether the peer sees anything of a request.
func isMessage(w *wq.WQE) bool { return w.Op != wq.OpLocalInvalidate && !w.Refused() }

// keep copies the list or the inline octets of wr.
func (k *acknowledging) keep(wr *wq.Request) {
	if wr.Inline() {
		for data := wr.Data[:wr.Local.Length]; len(data) > 0; k.entry++ {
			data = data[copy(k.entryAt(k.entry).Octets()[:], data):]
		}
		return
	}
	for list := wr.List[:wr.More]; len(list) > 0; k.entry++ {
		list = list[copy(k.entryAt(k.entry).Ranges()[:], list):]
	}
}

// again makes wr the request at the cursor.
func (k *acknowledging) again(wr *wq.Request) {
	r := k.at(k.cursor)
	wr.WQE = r.wqe
	entry := r.entry
	if wr.Inline() {
		for data := wr.Data[:wr.Local.Length]; len(data) > 0; entry++ {
			data = data[copy(data, k.entryAt(entry).Octets()[:]):]
		}
		return
	}
	for list := wr.List[:wr.More]; len(list) > 0; entry++ {
		list = list[copy(list, k.entryAt(entry).Ranges()[:]):]
	}
}

// mustWaitAcknowledged is requester.mustWait in acknowledged mode. What may fail here, or takes
// memory away that a request before it may have to be sent from again, waits until all before it
// have completed.
func (q *Engine) mustWaitAcknowledged(wr *wq.WQE) bool {
	k, a := &q.ack, &q.requester
	return !isMessage(wr) && k.cursor != a.sent.head ||
		a.outstanding.count > 0 && (wr.Fence() ||
			wr.Op.IsRequest() && int(a.outstanding.count) >= a.ord)
}

// begun is how many messages were begun.
func (q *Engine) begun() uint32 {
	if q.requestInHand() {
		return q.ack.cut + 1
	}
	return q.ack.cut
}

// requestInHand says whether a message of a request was begun and not cut to its end.
func (q *Engine) requestInHand() bool {
	s := &q.send
	return s.seg.Active() && !s.answering
}

var errReliability = errors.New(
	"rnic: a Reliability Message that does not fit what was sent and accepted")

// heardOf acts on a Reliability Message about this end's requests. False: it cannot be.
func (q *Engine) heardOf(m *rdmap.Reliability) bool {
	k := &q.ack
	if int32(m.Count-k.acked) < 0 {
		return false
	}
	if m.Kind == rdmap.Acknowledge {
		if int32(m.Count-k.cut) > 0 {
			return false
		}
		k.acceptedTo(m.Count)
		q.settle()
		return true
	}
	if k.waiting || int32(m.Count-q.begun()) >= 0 {
		return false
	}
	k.acceptedTo(m.Count)
	q.settle()
	return q.takeBack(m)
}

// takeBack has what the peer has not accepted be sent again, after Resume. False: m does not say
// what was sent.
func (q *Engine) takeBack(m *rdmap.Reliability) bool {
	k, a, s := &q.ack, &q.requester, &q.send
	first := a.sent.head
	for ; first != a.sent.end(); first++ {
		if r := k.at(first); r.number == m.Count && isMessage(&r.wqe) {
			break
		}
	}
	end := k.cursor
	if q.requestInHand() {
		end++
	}
	if int32(end-first) <= 0 { // start-up's message, which every receiver is ready for
		return false
	}
	var sends, reads uint32
	for place := first; place != end; place++ {
		switch op := k.at(place).wqe.Op; {
		case op.IsRequest():
			reads++
		case op != wq.OpWrite:
			sends++
		}
	}
	s.seg.Rewind(rdmap.QNSend, sends)
	s.seg.Rewind(rdmap.QNRead, reads)
	if s.seg.MSN(rdmap.QNSend) != m.SendMSN || s.seg.MSN(rdmap.QNRead) != m.ReadMSN {
		return false
	}
	if q.requestInHand() {
		s.seg.Abort()
		s.found = nil
	}
	s.wr.WQE = wq.WQE{} // it is in sent
	for n := a.outstanding.count; n > 0; n-- {
		if r := a.outstanding.at(n - 1); r.startup || int32(r.sent-first) < 0 {
			break
		}
		a.forget()
	}
	s.held, k.cursor, k.cut = false, first, m.Count
	k.waiting, k.wait = true, m.Timer
	k.notReadyIn++
	k.tries++
	if q.retry.exhausted(k.tries, m.Tries) {
		a.sent.at(first - a.sent.head).flushStatus = wq.RNRRetryExceeded
		q.StopSending()
		q.Leave(wq.Error)
		q.affect(EffectFail, ErrReceiverNotReady)
		return true
	}
	q.effects |= EffectNotReady
	return true
}

// Resume sends what was taken back, when the time is over that the peer has named.
func (q *Engine) Resume() {
	if k := &q.ack; k.waiting && !q.send.stopped {
		k.waiting = false
		k.due |= dueResume
	}
}
