package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// The RTR message of RFC 6581: the Initiator's first FPDU, before anything that was posted, which
// no ULP sees.
//
//	Write  zero-length RDMA Write: STag and TO are not looked at (RFC 5041 section 7.2)
//	Read   zero-length RDMA Read Request, answered with a zero-length Read Response: an ordinary one
//	Send   zero-length Send: takes MSN 1, and at the Responder a receive buffer of start-up's own
//
// A Responder that has named several kinds learns from the first FPDU which it is. Where a Send is
// among them, what comes out of order is held until then and not placed, so that no Send is placed
// before it is known whose the first receive buffer is.

const rtrSendLen = ddp.UntaggedLen // ULPDU_Length 18 (DECISIONS 5)

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

// OweWakeUp queues an RDMA Write of no octets, if anything was sent before it and may be now
// (wakeup.go).
func (q *Engine) OweWakeUp() bool {
	s := &q.send
	if s.fpdus == 0 || s.stopped || s.term != nil || s.owed != nil {
		return false
	}
	s.oweRTR(mpa.RTRWrite)
	return true
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
	s.parts = append(s.parts[:1], s.owedBody)
	k := s.putFPDU(out, h)
	s.owed, s.owedBody = nil, nil
	if size > len(dst) {
		return s.putCarried(dst, k)
	}
	return k
}

// rtrState is what the receiving half knows of an RTR message.
type rtrState struct {
	awaited bool   // Responder: the first FPDU says whose the first receive buffer is
	hidden  bool   // Responder: the first receive buffer is start-up's
	sends   uint32 // messages of queue 0 that were start-up's
}

func (q *Engine) startRTR(t *mpa.Terms, responder bool) {
	g := &q.recv.rtr
	if !responder {
		if t.RTR != 0 {
			q.send.oweRTR(t.RTR)
		}
		return
	}
	if g.awaited = rtrMayBeSend(t); g.awaited {
		q.recv.sendQ.InitLists(ceilPow2(q.RecvDepth+1), q.RecvRanges) // the hidden buffer's place
	}
}

// asksWhoseBuffer says whether a Responder cannot know, before the first FPDU, whether the first
// receive buffer is the ULP's.
func rtrMayBeSend(t *mpa.Terms) bool { return t.RTR&mpa.RTRSend != 0 }

// readsAsRTR says whether the Initiator's RTR message is a Read.
func rtrIsRead(t *mpa.Terms, responder bool) bool { return !responder && t.RTR == mpa.RTRRead }

// first looks at the first FPDU of a peer that may owe a Send as RTR message. Any other is taken as
// it comes: what counts is that it is valid (RFC 5044 section 7.1.2 rule 4).
func (q *Engine) firstFPDU(h *ddp.Header, n int) {
	g := &q.recv.rtr
	g.awaited = false
	_, op := rdmap.ParseControl(h.ULP)
	if !h.Tagged && op == rdmap.OpSend && h.Last && h.MSN == 1 && n == rtrSendLen {
		q.recv.sendQ.Post(ddp.RecvBuffer{})
		g.hidden = true
	}
}
