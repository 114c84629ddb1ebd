package qp

import (
	"errors"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// TerminateFor makes the Terminate that tells the peer of an error in what it sent (RFC 5040
// section 4.8): the one place where errors of MPA, DDP and RDMAP become layer, type and code.
func TerminateFor(err error) rdmap.Terminate {
	var (
		inDDP   *ddp.Error
		inMPA   *mpa.Error
		inRDMAP *opcodeError
		inSetup *SetupError
	)
	switch {
	case errors.As(err, &inDDP):
		return rdmap.TerminateDDP(inDDP)
	case errors.As(err, &inMPA):
		return rdmap.TerminateLLP(uint8(inMPA.Code))
	case errors.As(err, &inRDMAP):
		return rdmap.TerminateRDMAP(inRDMAP.cause, &inRDMAP.header, inRDMAP.segmentLen, inRDMAP.read)
	case errors.As(err, &inSetup):
		return rdmap.TerminateLLP(uint8(mpa.ErrLocalCatastrophic))
	case errors.Is(err, ErrCQOverflow):
		return rdmap.Terminate{Cause: rdmap.CauseLocal}
	}
	return rdmap.Terminate{Cause: rdmap.CauseStream}
}

func terminateBody(err error) []byte {
	t := TerminateFor(err)
	b := make([]byte, t.Len())
	t.Put(b)
	return b
}

// FaultText words an error as the peer words the Terminate that tells of it, if that names the
// segment in question. Others speak for themselves.
func FaultText(err error) string {
	if t := TerminateFor(err); t.HasDDP {
		return t.String()
	}
	return err.Error()
}

// peerError reads a Terminate of the peer's.
func peerError(body []byte) *PeerError {
	t, _ := rdmap.ParseTerminate(body) // a short one still has its cause
	return &PeerError{t}
}

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
	k := s.putWhole(out, s.term)
	s.term, s.termOut = nil, true
	if size > len(dst) {
		return s.carryFrom(dst, k)
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
		said := peerError(q.ctrl.Bytes()[:r.terminate])
		q.requester.findCause(&said.Terminate)
		q.leaveService(&TerminateError{Remote: true, Cause: said})
	case r.rx.Err() != nil:
		r.dead = true
		q.ReceiveError(r.rx.Err())
	case r.fault != nil:
		q.ReceiveError(r.fault)
	case r.ddp.Err() != nil:
		q.ReceiveError(r.ddp.Err())
	}
}

// ReceiveError answers the peer's fault, or one of start-up: one Terminate goes out and then our
// half is closed.
func (q *Engine) ReceiveError(err error) {
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
	q.ReceiveError(err)
}
