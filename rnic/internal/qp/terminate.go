package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/rdmap"
)

// terminate queues the one message that may follow an error (RFC 5040 section 4.8); everything else
// stops.
func (s *sendHalf) terminate(body []byte) {
	if s.stopped {
		return
	}
	s.stopped = true
	if s.termOut || !s.enabled {
		return
	}
	h := ddp.Header{Last: true, Version: s.version, ULP: rdmap.Control(s.version, rdmap.OpTerminate), QN: rdmap.QNTerminate, MSN: 1}
	s.term = make([]byte, h.Len()+len(body))
	h.Put(s.term)
	copy(s.term[h.Len():], body)
}

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

// lookForErrors acts on what a burst of octets brought to light: once.
func (q *Engine) lookForErrors() {
	r := &q.recv
	switch {
	case r.reported:
	case r.terminated:
		r.reported = true
		q.send.stopped = true
		peer := peerError(q.ctrl.Bytes()[:r.terminate])
		q.requester.findCause(&peer.Terminate)
		q.leaveService(&TerminateError{Remote: true, Cause: peer})
	case r.rx.Err() != nil:
		r.dead = true
		q.Terminate(r.rx.Err())
	case r.fault != nil:
		q.Terminate(r.fault)
	case r.ddp.Err() != nil:
		q.Terminate(r.ddp.Err())
	}
}

// Terminate answers the peer's fault, or one of start-up: one Terminate goes out and then our
// half is closed.
func (q *Engine) Terminate(err error) {
	q.recv.reported = true
	q.send.terminate(terminateBody(err))
	q.leaveService(&TerminateError{Cause: err})
}

func (q *Engine) leaveService(err error) {
	q.Leave(Terminating)
	q.affect(EffectLeave, err)
}

// RejectStream ends a stream that does not begin as it must. What arrives from now on is swallowed.
func (q *Engine) RejectStream(err error) {
	q.recv.dead = true
	q.Terminate(err)
}
