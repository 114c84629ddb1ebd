package qp

import (
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// responder answers the peer's Reads and atomics. They have no completions (RFC 5040 section
// 5.2.1).
//
//	Request --Delivery--> checked in full; an atomic executed --> answers --sendHalf--> Response
//	   ^ one of IRD buffers of queue 1; posted again when the Response was cut
//
// Nothing is done before Delivery (section 5.5, rules 12 and 17), and then in order. If the peer
// has more than IRD Requests outstanding there is no buffer on queue 1, and DDP ends the stream.
type responder struct {
	requestQ ddp.Queue
	answers  fifo[answer]
	gone     bool // the source of the first of answers is

	served uint64 // Responses that were cut
}

// nextMSN is that of the next Request.
func (s *responder) nextMSN() uint32 {
	if len(s.answers.slots) == 0 {
		return 1
	}
	return s.requestQ.Next()
}

// answer is a Request that was delivered and has no Response yet.
type answer struct {
	atomic   bool
	read     rdmap.ReadRequest
	response rdmap.AtomicResponse

	header     ddp.Header // of the Request, for a Terminate
	segmentLen int
	buffer     ddp.RecvBuffer // that it came in
}

// start posts buffers for ird Requests.
func (s *responder) start(ctrl mem.STag, ird int) {
	s.requestQ.Init(ceilPow2(ird))
	s.answers.init(ird)
	for i := range ird {
		s.requestQ.Post(ddp.RecvBuffer{STag: ctrl, TO: uint64(requestsAt + i*requestSlot),
			Len: requestSlot})
	}
}

// deliverRequest queues the answer to a Read or Atomic Request. The Request's buffer is posted
// again when the Response was cut.
func (q *Engine) deliverRequest(d *ddp.Delivered, op rdmap.Opcode) {
	if q.recv.fault != nil {
		return // the stream is at its end, and no answer would be sent
	}
	a := answer{header: d.Header, segmentLen: d.SegmentLen(), buffer: d.Buffer}
	body := q.control.region.Bytes()[d.Buffer.TO:][:d.Len]
	cause, isRead := rdmap.CauseOperation, false
	if op == rdmap.OpAtomicRequest {
		a.atomic = true
		cause = q.carryOut(&a, body)
	} else if a.read, isRead = rdmap.ParseReadRequest(body); isRead {
		cause = q.judgeRead(&a.read)
	}
	if cause != 0 {
		q.refuse(&a, cause, isRead)
		return
	}
	q.accept()
	q.respond.answers.push(a)
	q.effects |= EffectSend
}

// judgeRead checks the whole range that a Read Request names. An empty one is not checked (RFC 5040
// sections 5.2.1 and 7.2). 0: the Read may be answered.
func (q *Engine) judgeRead(r *rdmap.ReadRequest) rdmap.Cause {
	if r.Size == 0 {
		return 0
	}
	_, verdict := q.Table.Check(q.Domain, q.Stream, r.SrcSTag, r.SrcTO, int(r.Size),
		q.needs(mem.RemoteRead, PeerReads))
	return rdmap.ReadCause(verdict)
}

// carryOut executes an Atomic Request. 0: it was executed; otherwise memory is unchanged.
//
// It is atomic with respect to everything that this process does to the octets by sync/atomic, and
// so to the atomics of all streams (RFC 7306 section 5.3). Values in memory are in the host's byte
// order.
func (q *Engine) carryOut(a *answer, body []byte) rdmap.Cause {
	req, ok := rdmap.ParseAtomicRequest(body)
	if !ok {
		return rdmap.CauseOperation
	}
	if !req.Code.Valid() {
		return rdmap.CauseOpcode
	}
	b, verdict := q.Table.Check(q.Domain, q.Stream, req.STag, req.TO, AtomicLen,
		q.needs(mem.RemoteRead|mem.RemoteWrite, PeerAtomics))
	if verdict != mem.CheckOK {
		return rdmap.ReadCause(verdict)
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%AtomicLen != 0 {
		return rdmap.CauseStream // RFC 7306 section 8.2
	}
	original, ok := q.apply((*uint64)(p), &req)
	if !ok {
		return rdmap.CauseOperation // the page is gone; CauseStream says that the word is not aligned
	}
	a.response = rdmap.AtomicResponse{ID: req.ID, Original: original}
	return 0
}

// AtomicLen is the length and the alignment of the octets that an atomic operation changes.
const AtomicLen = 8

// apply executes req on *p and returns what was there before. False: *p cannot be reached.
func (q *Engine) apply(p *uint64, req *rdmap.AtomicRequest) (original uint64, ok bool) {
	defer q.recoverWord(debug.SetPanicOnFault(true))
	for {
		before := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, before, req.Apply(before)) {
			return before, true
		}
	}
}

// refuse ends the stream for a Request that cannot be answered. The Terminate has a copy of a Read
// Request's header (RFC 5040 section 7.1), but not of an Atomic Request's (RFC 7306 section 8.1).
func (q *Engine) refuse(a *answer, cause rdmap.Cause, isRead bool) {
	if q.recv.fault == nil { // the first error is the one to report
		e := &opcodeError{cause: cause, header: a.header, segmentLen: a.segmentLen, what: q.recv.lost}
		if isRead {
			read := a.read
			e.read = &read
		}
		q.recv.fault = e
	}
	q.recv.ddp.Disable()
}

// beginAnswer starts the next Response. There is one to send.
func (q *Engine) beginAnswer() {
	s, a := &q.send, q.respond.answers.at(0)
	var m ddp.Message
	if a.atomic {
		a.response.Put(s.body[:])
		m = ddp.Message{Header: rdmap.OpAtomicResponse.Header(s.version), Len: rdmap.AtomicResponseLen}
		s.from = source{own: s.body[:]}
	} else {
		m = ddp.Message{Header: rdmap.OpReadResponse.Header(s.version), Len: a.read.Size}
		m.Header.STag, m.Header.TO = a.read.SinkSTag, a.read.SinkTO
		s.from = source{
			first: wq.SGE{STag: a.read.SrcSTag, Length: a.read.Size, Offset: a.read.SrcTO}, stream: q.Stream,
			need: mem.RemoteRead,
		}
	}
	s.seg.Start(m)
	s.answering = true
}

// responseCut ends the answer at the front, whose last segment was just cut.
func (q *Engine) responseCut() {
	r := &q.respond
	r.requestQ.Post(r.answers.at(0).buffer)
	r.answers.pop()
	r.served++
	q.send.answering = false
}

// sourceGone ends the stream because the source of the Response in hand was revoked or cannot be
// reached. The Terminate says at which octet (RFC 5040 section 4.8).
func (q *Engine) sourceGone(off uint32, cause rdmap.Cause) {
	a := q.respond.answers.at(0)
	a.read.Advance(off)
	q.respond.gone = true
	q.refuse(a, cause, true)
}
