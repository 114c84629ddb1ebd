package qp

import (
	"errors"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// terminate stops sending, except for one Terminate with this body (RFC 5040 section 4.8), which it
// queues. A Responder that may not send yet, or an end that has sent one, sends none.
func (s *sendHalf) terminate(body []byte) {
	if s.stopped {
		return
	}
	s.stopped = true
	if s.termOut || !s.enabled {
		return
	}
	h := ddp.Header{Last: true, Version: s.version, ULP: rdmap.Control(s.version, rdmap.OpTerminate),
		QN: rdmap.QNTerminate, MSN: 1}
	s.term = make([]byte, h.Len()+len(body))
	h.Put(s.term)
	copy(s.term[h.Len():], body)
}

// putTerminate writes the Terminate. It returns 0 when that does not fit.
func (s *sendHalf) putTerminate(dst []byte, emss int) int {
	size := s.tx.Size(len(s.term))
	if size > len(dst) && len(dst) != emss {
		return 0 // it begins the next segment
	}
	out := dst
	if size > len(dst) {
		out = s.carry[:]
	}
	k := s.putULPDU(out, s.term)
	s.term, s.termOut = nil, true
	if size > len(dst) {
		return s.putCarried(dst, k)
	}
	return k
}

// lookForErrors ends the stream, once, if the peer's Terminate or an error was found.
func (q *Engine) lookForErrors() {
	r := &q.recv
	switch {
	case r.reported:
	case r.terminated:
		r.reported = true
		r.totals.TerminatesIn++
		q.send.stopped, q.ack.due = true, 0
		peer := peerError(q.control.region.Bytes()[:r.terminate])
		if !q.requester.findCause(&peer.Terminate) && q.ack.on {
			q.refusedFirst(&peer.Terminate)
		}
		q.leaveService(&TerminateError{Remote: true, Cause: peer})
	case r.rx.Err() != nil:
		r.dead = true
		if e := (*mpa.Error)(nil); errors.As(r.rx.Err(), &e) && e.Code == mpa.ErrCRC {
			r.totals.CRCErrors++
		}
		q.Terminate(r.rx.Err())
	case r.fault == nil && r.ddp.Err() == nil:
	case q.answersFirst():
		r.toReport = true
	case r.fault != nil:
		q.Terminate(r.fault)
	default:
		q.Terminate(r.ddp.Err())
	}
}

// answersFirst says whether the Terminate has to wait: in acknowledged mode what the peer has asked
// for before its error is answered, as on InfiniBand, so that only what is to blame fails.
func (q *Engine) answersFirst() bool {
	s := &q.send
	return q.ack.on && s.enabled && !s.stopped && q.respond.answers.count > 0 && !q.respond.gone
}

// Terminate ends the stream for an error of the peer or of start-up: one Terminate is sent, and
// then our half is closed.
func (q *Engine) Terminate(err error) {
	q.recv.reported = true
	q.recv.totals.Ended++
	if q.ack.due = 0; q.SendAcknowledgements() { // what is before the error was accepted
		q.ack.due = dueAcknowledge
	}
	q.send.terminate(terminateBody(err))
	q.leaveService(&TerminateError{Cause: err})
}

// leaveService has the connection close our half, for err.
func (q *Engine) leaveService(err *TerminateError) {
	n := err.number()
	q.terminated, q.terminator = uint16(n), uint8(n>>16)
	q.Leave(wq.Terminating)
	q.affect(EffectLeave, err)
}

// RejectStream is Terminate for a stream that does not begin as it must. Octets that arrive later
// are swallowed.
func (q *Engine) RejectStream(err error) {
	q.recv.dead = true
	q.Terminate(err)
}
