package qp

import (
	"encoding/binary"
	"math"
	"runtime/debug"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// requester knows the outstanding Requests of this end, and keeps completions in the order of
// posting (RFC 5040 section 5.5, rule 15).
//
//	Read, atomic --Request cut--> outstanding, sent --Response delivered--> done --┐
//	Send, Write --last segment cut--> sent, done ----------------------------------┴--> completion
//
// While sent is empty a Send or Write completes when its last segment is cut, and does not enter
// it.
type requester struct {
	ord int
	// in the order of the Requests, which is that of the Responses (rule 20)
	outstanding fifo[outstanding]
	sinks       sinks // the Reads among them
	sent        fifo[sentRequest]
	atomicQ     ddp.Queue // queue 3
	lastID      uint32    // Request Identifier of the last Atomic Request
	over        bool      // the peer has closed its half: no more Responses come
}

// outstanding is a Request without a Response yet.
type outstanding struct {
	atomic  bool
	startup bool   // it is the RTR message, which has no work request
	size    uint32 // of the sink; of an atomic 0 if the word before is to go nowhere
	sink    mem.STag
	sinkTO  uint64
	msn     uint32 // of the Request
	id      uint32 // Request Identifier, of an Atomic Request
	sent    uint32 // its position in requester.sent, free-running
}

// sentRequest is a work request that was sent and has not completed.
type sentRequest struct {
	id          uint64
	original    uint64 // of an atomic: what was in memory
	n           uint32
	op          wq.Opcode
	signaled    bool
	done        bool
	flushStatus wq.Status // if it is not done when the connection ends
}

// start makes room for ord Requests, and for an RTR message that is a Read. Without ORD nothing
// else is needed.
func (a *requester) start(q *Engine, ord int, rtr bool) {
	if ord == 0 && !rtr {
		return
	}
	a.outstanding.init(max(1, ord))
	a.sinks = sinks{places: make([]uint32, len(a.outstanding.slots))}
	if rtr {
		a.begin(outstanding{startup: true, sink: RTRSTag, msn: 1})
	}
	if a.ord = ord; ord == 0 {
		return
	}
	a.sent.init(q.SendDepth)
	a.atomicQ.Init(ceilPow2(ord))
	at := q.control.depths.responsesAt()
	for i := range ord {
		a.atomicQ.Post(ddp.RecvBuffer{STag: q.control.region.STag(), TO: uint64(at + i*responseSlot),
			Len: rdmap.AtomicResponseLen})
	}
}

// mustWait says whether a work request has to wait for Responses: because of its fence, because
// sent is full, or because ORD Requests are outstanding. When the peer has closed its half nothing
// waits.
func (a *requester) mustWait(wr *wq.WQE) bool {
	return !a.over && a.outstanding.count > 0 &&
		(wr.Fence() || a.ord > 0 && a.sent.full() || wr.Op.IsRequest() &&
			int(a.outstanding.count) >= a.ord)
}

// request makes the message of a Read or an atomic operation.
func (q *Engine) request() ddp.Message {
	s, wr := &q.send, &q.send.wr
	s.from = source{own: s.body[:]}
	if wr.Op == wq.OpRead {
		r := rdmap.ReadRequest{
			SinkSTag: wr.Local.STag, SinkTO: wr.Local.Offset, Size: wr.Local.Length, SrcSTag: wr.RemoteSTag,
			SrcTO: wr.RemoteOffset,
		}
		r.Put(s.body[:])
		return ddp.Message{Header: rdmap.OpReadRequest.Header(s.version), Len: rdmap.ReadRequestLen}
	}
	q.requester.lastID++
	r := rdmap.AtomicRequest{Code: rdmap.FetchAdd, ID: q.requester.lastID, STag: wr.RemoteSTag,
		TO: wr.RemoteOffset, Data: wr.Operands[0], Mask: wr.Operands[1]}
	if wr.Op == wq.OpCompareSwap {
		r.Code, r.Compare, r.Data, r.CompareMask, r.Mask = rdmap.CompareSwap, wr.Operands[0],
			wr.Operands[1], math.MaxUint64, math.MaxUint64
		if wr.More > 0 {
			r.CompareMask, r.Mask = wr.List[0].Masks()
		}
	}
	r.Put(s.body[:])
	return ddp.Message{Header: rdmap.OpAtomicRequest.Header(s.version), Len: rdmap.AtomicRequestLen}
}

// requestCut enters the work request in hand, whose Request was just cut.
func (q *Engine) requestCut(msn uint32) {
	a, wr := &q.requester, &q.send.wr
	sink, n := wr.Local, wr.Local.Length
	if wr.Op.IsAtomic() {
		n = AtomicLen
	}
	place := a.sent.end()
	if q.ack.on {
		place = q.ack.cursor
	}
	a.begin(outstanding{
		atomic: wr.Op != wq.OpRead, size: sink.Length, sink: sink.STag, sinkTO: sink.Offset,
		msn: msn, id: a.lastID, sent: place,
	})
	if q.ack.on {
		return // it is in sent already
	}
	a.sent.push(sentRequest{id: wr.ID, n: n, op: wr.Op, signaled: wr.Signaled(),
		flushStatus: wq.Flushed})
}

// expects judges a segment of a Read Response before it is placed: it must lie in the sink of an
// outstanding Read. That need not be the oldest, because segments come in any order.
func (a *requester) expects(h *ddp.Header, payload int) (rdmap.Cause, bool) {
	if a.sinks.count == 0 {
		return rdmap.CauseOpcode, false // no Read is outstanding
	}
	switch in, known := a.takes(h, payload); {
	case in:
		return 0, true
	case known:
		return rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, ddp.CodeBounds), false
	}
	return rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, ddp.CodeInvalidSTag), false
}

// deliverResponse completes the Read whose Response is delivered. It must answer the oldest
// Request, to its end.
func (q *Engine) deliverResponse(d *ddp.Delivered) {
	a := &q.requester
	if a.outstanding.count > 0 {
		r, h := a.outstanding.at(0), &d.Header
		if !r.atomic && r.sink == h.STag && h.TO+uint64(d.Len) == r.sinkTO+uint64(r.size) {
			q.responseArrived(0)
			return
		}
	}
	q.badResponse(d)
}

// deliverAtomicResponse completes the atomic operation whose Response is delivered. It must answer
// the oldest Request.
func (q *Engine) deliverAtomicResponse(d *ddp.Delivered) {
	a := &q.requester
	resp, ok := rdmap.ParseAtomicResponse(q.control.region.Bytes()[d.Buffer.TO:][:d.Len])
	if ok && a.outstanding.count > 0 {
		if r := a.outstanding.at(0); r.atomic && r.id == resp.ID {
			a.atomicQ.Post(d.Buffer)
			if !q.keepOriginal(r, resp.Original) {
				a.setFlushStatus(0, wq.LocalProtection)
				if q.recv.fault == nil {
					q.recv.fault = &opcodeError{cause: rdmap.CauseLocal, header: d.Header,
						segmentLen: d.SegmentLen(), what: q.recv.lost}
				}
				q.recv.ddp.Disable()
				return
			}
			q.responseArrived(resp.Original)
			return
		}
	}
	q.badResponse(d)
}

// keepOriginal writes the word before to where the request wants it, if it does. False: that memory
// was revoked since, or is gone. Between Enter and Exit of the Reader.
func (q *Engine) keepOriginal(r *outstanding, original uint64) bool {
	if r.size == 0 {
		return true
	}
	b, verdict := q.Table.Check(q.Domain, q.Stream, r.sink, r.sinkTO, AtomicLen, mem.LocalWrite)
	if verdict != mem.CheckOK {
		return false
	}
	return q.store(b, original)
}

// store writes a word. False: b cannot be reached.
func (q *Engine) store(b []byte, word uint64) (ok bool) {
	defer q.recoverWord(debug.SetPanicOnFault(true))
	binary.NativeEndian.PutUint64(b, word)
	return true
}

// badResponse ends the stream for a Response that does not answer the oldest Request.
func (q *Engine) badResponse(d *ddp.Delivered) {
	if q.recv.fault == nil {
		q.requester.setFlushStatus(0, wq.BadResponse)
		q.recv.fault = &opcodeError{cause: rdmap.CauseOperation, header: d.Header,
			segmentLen: d.SegmentLen(), what: errBadResponse}
	}
	q.recv.ddp.Disable()
}

// responseArrived ends the oldest Request, and completes what waited for it.
func (q *Engine) responseArrived(original uint64) {
	a := &q.requester
	q.ack.answers += 1 + uint64(a.outstanding.at(0).size)
	q.ack.responded = 0
	if r := a.outstanding.at(0); !r.startup {
		w := a.sent.at(r.sent - a.sent.head)
		w.done, w.original = true, original
		if q.ack.on {
			q.ack.acceptedTo(q.ack.at(r.sent).number + 1)
			a.end()
			q.settle()
			return
		}
	}
	a.end()
	for a.sent.count > 0 && a.sent.at(0).done {
		q.completeSent(a.sent.at(0), wq.Success)
		a.sent.pop()
	}
	if q.send.held || q.State() != wq.RTS {
		q.effects |= EffectSend
	}
}

// sentRoom says, in acknowledged mode, whether a request in sent is to be sent again next;
// otherwise whether none can be taken from the rings, full.
func (q *Engine) sentRoom() (again, full bool) {
	k, a := &q.ack, &q.requester
	if k.waiting || a.over {
		return false, true
	}
	return k.cursor != a.sent.end(), a.sent.full()
}

// completeSent publishes the completion of a work request that was in sent.
func (q *Engine) completeSent(w *sentRequest, st wq.Status) {
	if st == wq.Success && !w.signaled {
		q.SendCQ.unreserve(1)
		return
	}
	c := wq.CQE{ID: w.id, QP: q.Number, Op: w.op, Status: st}
	if st != wq.Success {
		c.Terminate = q.failedBy()
	} else {
		c.Len, c.Original = w.n, w.original
	}
	q.SendCQ.Push(c)
}

// PeerEnds tells that the peer has closed its half, so that no more Responses come. The result says
// whether one is missing. A Request that was begun, but did not fit into the last segment, is taken
// back.
func (q *Engine) PeerEnds() bool {
	q.requester.over = true
	if s := &q.send; s.seg.Active() && !s.answering && s.wr.Op.IsRequest() {
		s.seg.Abort()
		s.held = true // takeRequest decides again
	}
	return q.requester.sent.count > 0 && !q.recv.reported && !q.send.stopped
}

// setFlushStatus sets the status with which outstanding Request i completes when it is flushed. An
// RTR message has none.
func (a *requester) setFlushStatus(i uint32, st wq.Status) {
	if i < a.outstanding.count && !a.outstanding.at(i).startup {
		a.sent.at(a.outstanding.at(i).sent - a.sent.head).flushStatus = st
	}
}

// findCause finds the Request that the peer's Terminate is about, and sets its flush status. The
// Terminate has copies of the Request's headers. If a peer copies none, and the cause is one that
// only a Request can have, it is the oldest.
//
// False: it finds none.
func (a *requester) findCause(t *rdmap.Terminate) bool {
	st := remoteStatus(t.Cause)
	isRequest := t.HasDDP && !t.DDP.Tagged && t.DDP.QN == rdmap.QNRead
	for i := range a.outstanding.count {
		r := a.outstanding.at(i)
		if isRequest && r.msn == t.DDP.MSN ||
			!t.HasDDP && t.HasRead && !r.atomic && r.sink == t.Read.SinkSTag &&
				t.Read.SinkTO-r.sinkTO <= uint64(r.size) {
			if r.atomic && t.Cause == rdmap.CauseStream {
				st = wq.RemoteInvalidRequest // the word is not aligned: RFC 7306 section 8.2
			}
			a.setFlushStatus(i, st)
			return true
		}
	}
	if !t.HasDDP && !t.HasRead && st == wq.RemoteAccess && a.outstanding.count > 0 {
		a.setFlushStatus(0, st)
		return true
	}
	return false
}

// refusedFirst sets the flush status of the oldest request that the peer has not accepted, in
// acknowledged mode: its Terminate is about that, because it has said before what it has accepted,
// unless it is about a Response of ours.
func (q *Engine) refusedFirst(t *rdmap.Terminate) {
	k, a, c := &q.ack, &q.requester, t.Cause
	if op, _, ok := q.check(&t.DDP); t.HasDDP && ok && !op.IsRequest() {
		return
	}
	for place := a.sent.head; place != a.sent.end(); place++ {
		if w := a.sent.at(place - a.sent.head); k.at(place).number == k.acked && !w.done {
			w.flushStatus = refusedStatus(c)
			if w.op.IsAtomic() && c == rdmap.CauseStream {
				w.flushStatus = wq.RemoteInvalidRequest // as in findCause
			}
			return
		}
	}
}

// refusedStatus is remoteStatus of any request: what memory does not grant is an access error,
// memory of the peer's own that is gone is its own error.
func refusedStatus(c rdmap.Cause) wq.Status {
	switch {
	case c.Layer() == rdmap.LayerDDP && c.Type() == ddp.TypeTagged:
		return wq.RemoteAccess
	case c.Layer() == rdmap.LayerDDP && c.Type() == ddp.TypeLocalCatastrophic:
		return wq.RemoteOperation
	}
	return remoteStatus(c)
}

// remoteStatus is the status of a work request that the peer refused for cause c.
func remoteStatus(c rdmap.Cause) wq.Status {
	switch {
	case c.Layer() == rdmap.LayerRDMAP && c.Type() == rdmap.TypeRemoteProtection &&
		c != rdmap.CauseCannotInvalidate:
		return wq.RemoteAccess
	case c == rdmap.CauseOpcode, c == rdmap.CauseVersion, c.Layer() == rdmap.LayerDDP:
		return wq.RemoteInvalidRequest
	}
	return wq.RemoteOperation
}

// sinkFailed sets the flush status of the Read whose Response could not be placed, because its sink
// was changed or revoked after the Request was sent.
func (a *requester) sinkFailed(e *ddp.Error) {
	if _, op := rdmap.ParseControl(e.Header.ULP); e.Truncated || !e.Header.Tagged ||
		op != rdmap.OpReadResponse {
		return
	}
	for i := range a.outstanding.count {
		r := a.outstanding.at(i)
		if !r.atomic && r.sink == e.Header.STag && e.Header.TO-r.sinkTO < uint64(r.size) {
			a.setFlushStatus(i, wq.LocalProtection)
			return
		}
	}
}

// abandon completes everything in sent: what has no Response, and all after it.
func (a *requester) abandon(q *Engine) {
	for ; a.sent.count > 0; a.sent.pop() {
		w := a.sent.at(0)
		if st := q.flushStatus(); w.flushStatus == wq.Flushed {
			w.flushStatus = st
		}
		q.completeSent(w, w.flushStatus)
	}
}
