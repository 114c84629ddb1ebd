package qp

import (
	"errors"
	"strings"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// Errors of posting. rnic says when each comes.
var (
	ErrSendQueueFull = errors.New("rnic: send queue is full")
	ErrRecvQueueFull = errors.New("rnic: receive queue is full")
	ErrCQFull        = errors.New(
		"rnic: completion queue is fully reserved; poll it, let work that is not signaled go out, or " +
			"create it deeper")
	ErrReadDepth = errors.New(
		"rnic: this queue pair's ORD is 0: it asked for none (ConnParam.ORD), or the peer's IRD is 0")
	ErrExtension = errors.New(
		"rnic: the connection has no such requests: atomics and immediate data need RDMAP version 1, " +
			"Send with Immediate needs acknowledged mode")
)

// Reasons why an engine leaves service.
var (
	ErrCQOverflow = errors.New(
		"rnic: completion queue overflow: no place for the completion of a shared receive buffer")
	ErrLocalRange = errors.New(
		"rnic: a posted local range is not registered for this, or was revoked")
	ErrReceiverNotReady = errors.New(
		"rnic: the peer had no receive buffer for a message, as often as it was sent")
	errRefused     = errors.New("rnic: a work request that cannot be carried out")
	errUnreachable = errors.New(
		"rnic: registered memory was unmapped, protected, or its file cut shorter")
	ErrLocalInvalidate = errors.New(
		"rnic: Local Invalidate of an STag that is not valid, or that is not this queue pair's alone")
	errBadResponse = errors.New("rnic: a Response matches no Read")
)

// TerminateError is the end of a stream by an RDMAP Terminate.
type TerminateError struct {
	Remote bool // the peer found the error and told us: Cause is a *PeerError
	Cause  error
}

func (e *TerminateError) Error() string { return e.Cause.Error() }
func (e *TerminateError) Unwrap() error { return e.Cause }

// Terminate is the message that the peer has sent, or gets.
func (e *TerminateError) Terminate() rdmap.Terminate {
	if peer, ok := e.Cause.(*PeerError); ok {
		return peer.Terminate
	}
	return terminateFor(e.Cause)
}

// number is wq.CQE's Terminate.
func (e *TerminateError) number() uint32 {
	c := e.Terminate().Cause
	return wq.TerminateOf(e.Remote, c.Layer(), c.Type(), c.Code())
}

// failedBy is wq.CQE's Terminate for what fails from now on.
func (q *Engine) failedBy() uint32 { return uint32(q.terminator)<<16 | uint32(q.terminated) }

// SetupError is why this end could not put a connection into service as it was asked to. The
// Terminate for it says "local catastrophic error" (RFC 6581 section 9.3).
type SetupError struct{ Cause error }

func (e *SetupError) Error() string { return e.Cause.Error() }
func (e *SetupError) Unwrap() error { return e.Cause }

// opcodeError is an error that RDMAP finds in a segment or message.
type opcodeError struct {
	cause      rdmap.Cause
	header     ddp.Header
	segmentLen int
	read       *rdmap.ReadRequest // the message, if it is a Read Request
	what       error              // a cause in words, or nil
}

func (e *opcodeError) Error() string { return e.cause.String() }
func (e *opcodeError) Unwrap() error { return e.what }

// PeerError is what the peer's Terminate said.
type PeerError struct{ Terminate rdmap.Terminate }

func (e *PeerError) Error() string { return e.Terminate.String() }

// peerError reads a Terminate of the peer's.
func peerError(body []byte) *PeerError {
	t, _ := rdmap.ParseTerminate(body) // a short one still has its cause
	return &PeerError{t}
}

// terminateFor is the Terminate that tells the peer of an error in what it sent (RFC 5040 section
// 4.8). Only here do errors of MPA, DDP and RDMAP become layer, type and code.
func terminateFor(err error) rdmap.Terminate {
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

// terminateBody is the message of that Terminate.
func terminateBody(err error) []byte {
	t := terminateFor(err)
	b := make([]byte, t.Len())
	t.Put(b)
	return b
}

// FaultText is the text of an error: if its Terminate names the segment that was wrong, the text
// that the peer has for that Terminate, otherwise the error's own. That memory was unreachable is
// said besides.
func FaultText(err error) string {
	text := err.Error()
	if t := terminateFor(err); t.HasDDP {
		text = t.String()
	}
	if errors.Is(err, errUnreachable) && !strings.Contains(text, errUnreachable.Error()) {
		text = errUnreachable.Error() + ": " + text
	}
	return text
}
