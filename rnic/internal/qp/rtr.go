package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// The RTR message of RFC 6581 is the Initiator's first FPDU. It goes before everything that was
// posted, and no ULP sees it.
//
//	Write  zero-length RDMA Write: STag and TO are not checked (RFC 5041 section 5.2)
//	Read   zero-length RDMA Read Request, which a zero-length Read Response answers
//	Send   zero-length Send: takes MSN 1, and at the Responder a receive buffer that the engine posts
//
// A Responder that has offered several kinds learns from the first FPDU which it is. If one of them
// is a Send, octets beyond a gap are held until then and not placed: until then it is open whether
// MSN 1 goes to the engine's buffer or to the first one of the ULP.

const rtrSendLen = ddp.UntaggedLen // ULPDU_Length 18 (DECISIONS 5)

// owe has m sent before what was posted.
func (s *sendHalf) owe(m ddp.Message, body []byte) {
	s.owed, s.owedBody = &m, body
}

// oweRTR queues the Initiator's RTR message.
func (s *sendHalf) oweRTR(kind mpa.RTRKinds) {
	switch kind {
	case mpa.RTRWrite:
		h := rdmap.OpWrite.Header(s.version)
		h.STag = RTRSTag
		s.owe(ddp.Message{Header: h}, nil)
	case mpa.RTRRead:
		body := make([]byte, rdmap.ReadRequestLen)
		r := rdmap.ReadRequest{SinkSTag: RTRSTag, SrcSTag: RTRSTag}
		r.Put(body)
		s.owe(ddp.Message{Header: rdmap.OpReadRequest.Header(s.version), Len: rdmap.ReadRequestLen}, body)
	case mpa.RTRSend:
		s.owe(ddp.Message{Header: rdmap.OpSend.Header(s.version)}, nil)
	}
}

// Owes says whether a message of start-up's is queued that has not been sent.
func (q *Engine) Owes() bool { return q.send.owed != nil && !q.send.stopped && q.send.term == nil }

// OweWakeUp queues a zero-length RDMA Write (connect/wakeup.go); false: nothing was sent before,
// nothing may be sent now, or the peer would count it as one of ours (acknowledged mode).
func (q *Engine) OweWakeUp() bool {
	s := &q.send
	if s.fpdus == 0 || s.stopped || s.term != nil || s.owed != nil || q.ack.on {
		return false
	}
	s.oweRTR(mpa.RTRWrite)
	return true
}

// putOwed writes the owed message, which is one FPDU. It returns 0 when that does not fit.
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
	s.parts = append(s.parts[:1], s.owedBody)
	k := s.putFPDU(out, h)
	s.owed, s.owedBody = nil, nil
	if size > len(dst) {
		return s.putCarried(dst, k)
	}
	return k
}

// rtrState is what a Responder's receiving half knows of the RTR message, where it may be a Send.
type rtrState struct {
	awaited bool   // the first FPDU has not come: no receive buffers are posted
	hidden  bool   // the first receive buffer is the RTR message's, which is not delivered yet
	sends   uint32 // RTR messages that were Sends: 1 when it was delivered
}

// startRTR queues the Initiator's RTR message, or makes room for one that the Responder receives.
func (q *Engine) startRTR(t *mpa.Terms, responder bool) {
	g := &q.recv.rtr
	if !responder {
		if t.RTR != 0 {
			q.send.oweRTR(t.RTR)
		}
		return
	}
	if g.awaited = rtrMayBeSend(t); g.awaited {
		// one more for the RTR message's
		q.recv.sendQ.InitLists(ceilPow2(q.RecvDepth+1), int(q.RecvRanges))
	}
}

// rtrMayBeSend says whether a Responder has to see the first FPDU before it posts receive buffers.
func rtrMayBeSend(t *mpa.Terms) bool { return t.RTR&mpa.RTRSend != 0 }

// rtrMessages is how many RTR messages this end sends.
func rtrMessages(t *mpa.Terms, responder bool) uint32 {
	if !responder && t.RTR != 0 {
		return 1
	}
	return 0
}

// rtrIsRead says whether this end sends a Read as RTR message.
func rtrIsRead(t *mpa.Terms, responder bool) bool { return !responder && t.RTR == mpa.RTRRead }

// firstFPDU posts the RTR message's receive buffer if the first FPDU is a Send that is one. n is
// the length of its ULPDU. Any other valid FPDU does as well (RFC 5044 section 7.1.2 rule 4). The
// caller then posts the ULP's buffers.
func (q *Engine) firstFPDU(h *ddp.Header, n int) {
	g := &q.recv.rtr
	g.awaited = false
	_, op := rdmap.ParseControl(h.ULP)
	if !h.Tagged && op == rdmap.OpSend && h.Last && h.MSN == 1 && n == rtrSendLen {
		q.recv.sendQ.Post(ddp.RecvBuffer{})
		g.hidden = true
	}
}
