package rnic

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// The RTR message of RFC 6581: the Initiator's first FPDU, before anything that was posted, which no ULP sees.
//
//	Write  zero-length RDMA Write: STag and TO are not looked at (RFC 5041 section 7.2)
//	Read   zero-length RDMA Read Request, answered with a zero-length Read Response
//	Send   zero-length Send: takes MSN 1, and at the Responder a receive buffer of start-up's own
//
// A Responder that has named several kinds learns from the first FPDU which it is. Until then it takes no octets out of
// order, so that no Send is placed before it is known whose the first receive buffer is.

// rtrSTag goes into an RTR that has an STag: it names nothing, but adapters are known that refuse 0.
const rtrSTag = 1

// readRequestAt is where in the control region a Read Request goes, behind a Terminate.
const (
	readRequestAt  = terminateLenMax
	controlLen     = readRequestAt + rdmap.ReadRequestLen
	rtrSendLen     = ddp.UntaggedLen // ULPDU_Length 18 (DECISIONS 5)
	rtrResponseLen = ddp.TaggedLen
)

// owe makes a message of start-up's own go out before what was posted.
func (s *sendHalf) owe(m ddp.Message, body []byte) {
	s.owed, s.owedBody = &m, body
}

// oweRTR queues the Initiator's RTR message.
func (s *sendHalf) oweRTR(kind mpa.RTRKinds) {
	switch kind {
	case mpa.RTRWrite:
		h := rdmap.OpWrite.Header(s.version)
		h.STag = rtrSTag
		s.owe(ddp.Message{Header: h}, nil)
	case mpa.RTRRead:
		body := make([]byte, rdmap.ReadRequestLen)
		r := rdmap.ReadRequest{SinkSTag: rtrSTag, SrcSTag: rtrSTag}
		r.Put(body)
		s.owe(ddp.Message{Header: rdmap.OpReadRequest.Header(s.version), Len: rdmap.ReadRequestLen}, body)
	case mpa.RTRSend:
		s.owe(ddp.Message{Header: rdmap.OpSend.Header(s.version)}, nil)
	}
}

// oweResponse queues the answer to a zero-length Read Request.
func (s *sendHalf) oweResponse(r *rdmap.ReadRequest) {
	h := rdmap.OpReadResponse.Header(s.version)
	h.STag, h.TO = r.SinkSTag, r.SinkTO
	s.owe(ddp.Message{Header: h}, nil)
}

// putOwed writes the message of start-up's own, one FPDU; nothing when it does not fit.
func (s *sendHalf) putOwed(dst []byte, emss int) int {
	size := s.tx.Size(s.owed.Header.Len() + len(s.owedBody))
	out := dst
	if size > len(dst) {
		if len(dst) != emss {
			return 0 // it begins the next segment
		}
		out = s.carry[:]
	}
	s.seg.Start(*s.owed)
	h, _, _ := s.seg.Next(mpa.MULPDUMin)
	k := s.put(out, h, s.owedBody)
	s.owed, s.owedBody = nil, nil
	if size > len(dst) {
		return s.carryFrom(dst, k)
	}
	return k
}

// greeting is what the receiving half knows of an RTR message.
type greeting struct {
	awaited     mpa.RTRKinds // Responder: one of these comes first
	readQ       ddp.Queue    // Responder: takes the Read Request
	hidden      bool         // Responder: the first receive buffer is start-up's
	sends       uint32       // messages of queue 0 that were start-up's
	responseDue bool         // Initiator: to the Read Request
}

func (q *QueuePair) startGreeting(t *mpa.Terms, responder bool) {
	g := &q.recv.greet
	if !responder {
		if t.RTR != 0 {
			g.responseDue = t.RTR == mpa.RTRRead
			q.send.oweRTR(t.RTR)
		}
		return
	}
	if t.RTR&mpa.RTRSend != 0 {
		q.recv.sendQ.Init(ceilPow2(q.opt.RecvDepth + 1)) // the hidden buffer's place
	}
	if g.awaited = t.RTR; t.RTR&mpa.RTRRead != 0 {
		g.readQ.Init(1)
		g.readQ.Post(ddp.RecvBuffer{STag: q.ctrl.STag(), TO: readRequestAt, Len: rdmap.ReadRequestLen})
		q.recv.queues[rdmap.QNRead] = &g.readQ
	}
}

// first looks at the first FPDU of a peer that owes an RTR message. Any other is taken as it comes: what counts is that it is
// valid (RFC 5044 section 7.1.2 rule 4).
func (q *QueuePair) first(h *ddp.Header, n int) {
	g := &q.recv.greet
	awaited := g.awaited
	g.awaited = 0
	_, op := rdmap.ParseControl(h.ULP)
	if awaited&mpa.RTRSend != 0 && !h.Tagged && op == rdmap.OpSend && h.Last && h.MSN == 1 && n == rtrSendLen {
		q.recv.sendQ.Post(ddp.RecvBuffer{})
		g.hidden = true
	}
	if op != rdmap.OpReadRequest {
		q.recv.queues[rdmap.QNRead] = nil
	}
	q.postBuffers()
}

// serves says whether a segment's opcode is one that this end carries out now.
func (r *recvHalf) serves(op rdmap.Opcode, h *ddp.Header, n int) bool {
	switch op {
	case rdmap.OpReadRequest:
		return r.queues[rdmap.QNRead] != nil
	case rdmap.OpReadResponse:
		due := r.greet.responseDue && h.STag == rtrSTag && h.TO == 0 && n == rtrResponseLen && h.Last
		if due {
			r.greet.responseDue = false
		}
		return due
	}
	return served[op]
}

// deliverRead answers the RTR's Read Request. A real one is not served.
func (q *QueuePair) deliverRead(d *ddp.Delivered) {
	r := &q.recv
	req, ok := rdmap.ParseReadRequest(q.ctrl.Bytes()[readRequestAt:][:d.Len])
	switch {
	case r.fault != nil:
	case !ok:
		r.fault = &opcodeError{cause: rdmap.CauseOperation, header: d.Header, segmentLen: ddp.UntaggedLen + int(d.Len)}
		r.ddp.Disable()
	case req.Size > 0:
		r.fault = &opcodeError{cause: rdmap.CauseOpcode, header: d.Header, segmentLen: ddp.UntaggedLen + int(d.Len)}
		r.ddp.Disable()
	default:
		q.send.oweResponse(&req)
	}
}
