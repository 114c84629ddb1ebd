package rnic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Errors, for errors.Is. Those of posting calls first: nothing of the request in question was
// posted.
var (
	// ErrClosed: this end has closed or aborted, or the Adapter or Listener is closed. It is
	// net.ErrClosed, too.
	ErrClosed = connect.ErrClosed
	// ErrSendQueueFull and ErrRecvQueueFull: as many work requests are posted as the queue is deep.
	ErrSendQueueFull = qp.ErrSendQueueFull
	ErrRecvQueueFull = qp.ErrRecvQueueFull
	// ErrCQFull: posting would need more completions than the CompletionQueue can hold. Entries are
	// given back by Poll, and, of work that is not signaled and succeeds, when it is carried out:
	// then there is nothing to poll, and posting is tried again.
	ErrCQFull = qp.ErrCQFull
	// ErrListTooLong: more ranges than QPOptions.SGEMax.
	ErrListTooLong = errors.New("rnic: work request has more ranges than QPOptions.SGEMax allows")
	// ErrInlineTooLong: more octets than QPOptions.InlineMax.
	ErrInlineTooLong = errors.New(
		"rnic: work request has more inline data than QPOptions.InlineMax allows")
	// ErrTooLong: the ranges together have more octets than a message can have, 2^32-1.
	ErrTooLong = errors.New("rnic: the ranges of a work request together have 2^32 octets or more")
	// ErrShape: a List, Inline or Local that a request of its kind cannot have.
	ErrShape = errors.New("rnic: not possible in a work request of this kind")
	// ErrReadDepth: no Read can be under way, for ORD is 0: ConnParam.ORD is, or the peer serves
	// none.
	ErrReadDepth = qp.ErrReadDepth
	// ErrExtension: atomics and immediate data exist in RDMAP version 1 only, Send with Immediate in
	// acknowledged mode only, and this connection is of version 0, or without the mode.
	ErrExtension = qp.ErrExtension
	// ErrShared: the QueuePair takes its receive buffers from a SharedReceiveQueue, so that it has
	// none of its own.
	ErrShared = errors.New("rnic: the queue pair has a shared receive queue: post there")

	// ErrState: the call does not fit the QueuePair's state.
	ErrState = connect.ErrState
	// ErrStartupTimeout: the peer did not send its MPA start-up frame in time.
	ErrStartupTimeout = connect.ErrStartupTimeout
	// ErrPeerClosed: the peer closed the connection in the middle of a frame or during start-up.
	ErrPeerClosed = connect.ErrPeerClosed
	// ErrLinger: our half was to be closed, or was, and nothing moved for ConnParam.UserTimeout or
	// 100 s (after a Terminate, 3 s), so the connection was reset. What was posted last may be
	// lost.
	ErrLinger = connect.ErrLinger
	// ErrFirstMarker: the peer does not begin with a marker that points at what follows, as
	// culley-02 has it: it speaks another dialect.
	ErrFirstMarker error = connect.ErrFirstMarker
	// ErrORDShort: the Initiator's IRD is less than ConnParam.ORDMin. It is an *MPAError.
	ErrORDShort error = mpa.ErrORDShort
	// ErrHoarding: the peer left frames unfinished, or what it was sent unacknowledged, while
	// packet buffers were short and others needed them. It is stack.ErrHoarding.
	ErrHoarding = stack.ErrHoarding
	// ErrUnread: the peer had said more in streaming mode than was read when MPA was to start. The
	// connection still is the stream it was.
	ErrUnread = connect.ErrUnread
	// ErrUnanswered: the peer closed its half of the connection, and Reads or atomics of ours that
	// it had been sent were not answered.
	ErrUnanswered = connect.ErrUnanswered
	// ErrUnacknowledged is ErrUnanswered of a connection in acknowledged mode, where every request
	// counts (ConnParam.Acknowledged).
	ErrUnacknowledged = connect.ErrUnacknowledged
	// ErrNoAnswer: the peer has answered no request of ours for Retry.Unanswered.
	ErrNoAnswer = connect.ErrNoAnswer
	// ErrReceiverNotReady: the peer had no receive buffer for a message as often as Retry.Tries
	// allows.
	ErrReceiverNotReady = qp.ErrReceiverNotReady
	// ErrCQOverflow is why a QueuePair left service whose RecvCQ had no place for the completion of
	// a shared receive buffer.
	ErrCQOverflow = qp.ErrCQOverflow
	// ErrRevoked is Window.Bind's answer for a region that is not valid.
	ErrRevoked = mem.ErrRevoked
	// ErrWindowFreed is Window.Bind's answer after Free.
	ErrWindowFreed = errors.New("the window was freed")
	// ErrPeerMax is a stack.ErrConnMax: one address has as many connections over kernel sockets as
	// Config.PeerMax says. A Poller does not answer further ones and counts them
	// (stack.DropPeerMax).
	ErrPeerMax = transport.ErrPeerMax
	// ErrBacklog: a listener had no room for a further connection request.
	ErrBacklog = errors.New("rnic: too many connection requests wait to be accepted")
)

// RejectedError is a Dial that the peer's ULP rejected. A Responder that does not serve the dialect
// answers in the same way, with no private data and, where it can, another Rev (RFC 5044 section
// C.2.1): Error says so when that may be it.
type RejectedError struct {
	PrivateData []byte
	Asked       Dialect // of the Request
	Rev         int     // of the Reply
	Enhanced    bool    // the Reply has read depths: what the peer could serve, and the ORD it needs
	IRD, ORD    int
	// with ConnParam.KeepRejected: the TCP connection, in streaming mode again, the caller's to close
	Conn net.Conn
}

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("rnic: connection rejected by the peer (%d octets of private data)",
		len(e.PrivateData))
	switch {
	case !e.MaybeDialect():
		return text
	case e.Rev != e.Asked.Rev():
		return fmt.Sprintf("%s, with MPA revision %d: it does not serve %v, or its ULP said no", text,
			e.Rev, e.Asked)
	}
	return fmt.Sprintf("%s: its ULP said no, or it does not serve %v", text, e.Asked)
}

// MaybeDialect says whether the peer's MPA may have rejected, for want of the dialect, and not its
// ULP.
func (e *RejectedError) MaybeDialect() bool {
	return e.Asked.Valid() && !e.Enhanced && (len(e.PrivateData) == 0 || e.Rev != e.Asked.Rev())
}

// TerminateError is the end of a stream by an RDMAP Terminate. Both ends word what DDP and RDMAP
// find alike; where MPA found it, the end that did says more than the Terminate can.
type TerminateError struct {
	Remote bool // the peer found the error and told us
	Cause  error
}

func (e *TerminateError) Error() string {
	if e.Remote {
		return "rnic: peer terminated the stream: " + e.Cause.Error()
	}
	return "rnic: stream terminated: " + qp.FaultText(e.Cause)
}

func (e *TerminateError) Unwrap() error { return e.Cause }

// Control is what the Terminate says (RFC 5040 section 4.8), as the fields of PeerError have it.
func (e *TerminateError) Control() (layer, errType, code uint8) {
	if peer, ok := e.Cause.(*PeerError); ok {
		return peer.Layer, peer.Type, peer.Code
	}
	c := (&qp.TerminateError{Cause: e.Cause}).Terminate().Cause
	return c.Layer(), c.Type(), c.Code()
}

// PeerError is what the peer's Terminate said (RFC 5040 section 4.8). Error words it, with the
// segment that it is about.
type PeerError struct {
	Layer uint8 // 0 RDMAP, 1 DDP, 2 MPA
	Type  uint8 // of the layer's errors
	Code  uint8 // of the type's

	said qp.PeerError
}

func (e *PeerError) Error() string { return e.said.Error() }

// publicError is err of an engine or a connection as the application has it.
func publicError(err error) error {
	switch e := err.(type) {
	case *qp.TerminateError:
		return &TerminateError{Remote: e.Remote, Cause: publicError(e.Cause)}
	case *connect.Rejection:
		return &RejectedError{
			PrivateData: e.PrivateData, Asked: Dialect(e.Asked), Rev: e.Rev, Enhanced: e.Enhanced,
			IRD: e.IRD, ORD: e.ORD, Conn: e.Conn,
		}
	case *connect.Revision:
		return &RevisionError{Revision: e.Revision, Asked: Dialect(e.Asked), Served: listOf(e.Served),
			Reply: e.Reply, Lower: e.Lower}
	case *qp.PeerError:
		c := e.Terminate.Cause
		return &PeerError{Layer: c.Layer(), Type: c.Type(), Code: c.Code(), said: *e}
	}
	return err
}

// MPAError is what MPA of this end found, the peer's fault or the connection's. Code is that of RFC
// 5044 section 8: 1 where TCP ended, 2 for a CRC that does not match, 3 for a marker, 4 for an
// invalid start-up frame; or of RFC 6581 section 8: 5 for other faults of start-up, 6 for read
// depths and 7 for RTR messages on which the ends do not agree. Offset is the octet of the
// half-connection where the FPDU begins, or an octet of the frame; What is a constant text.
type MPAError = mpa.Error

// RevisionError is a start-up frame of an MPA revision, or a dialect, that is not served here.
type RevisionError struct {
	Revision int
	Asked    Dialect // of the Request, the peer's or ours; 0: of no known one
	Served   []Dialect
	Reply    bool // ours was the Request
	Lower    bool // a Reply of a lower revision than the Request's
}

func (e *RevisionError) Error() string {
	switch {
	case e.Reply:
		return fmt.Sprintf("rnic: asked in %v (MPA revision %d), the peer answered with revision %d: "+
			"it does not serve that dialect",
			e.Asked, e.Asked.Rev(), e.Revision)
	case e.Asked != 0:
		return fmt.Sprintf("rnic: peer asks in %v (MPA revision %d), served here: %v", e.Asked,
			e.Revision, setOf(e.Served...))
	}
	return fmt.Sprintf("rnic: peer speaks MPA revision %d, served here: %v", e.Revision,
		setOf(e.Served...))
}

// ConnectError is a connection that did not come about; Err says why (QueuePair.Connect). It is a
// net.Error, and errors.As finds a *net.OpError in it, as in what net.Dial returns.
type ConnectError struct {
	Addr string
	Err  error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("rnic: connect to %s: %v", e.Addr, e.Err)
}
func (e *ConnectError) Unwrap() error { return opError("dial", e.Addr, e.Err) }

// Timeout says whether the peer, or what ended the wait for it, took too long.
func (e *ConnectError) Timeout() bool { return isTimeout(e.Err) }

// Temporary is for net.Error.
func (e *ConnectError) Temporary() bool { return isTimeout(e.Err) }

// listenError is a Listen that failed, with a *net.OpError for errors.As.
type listenError struct {
	addr string
	err  error
}

func (e *listenError) Error() string { return fmt.Sprintf("rnic: listen on %q: %v", e.addr, e.err) }
func (e *listenError) Unwrap() error { return opError("listen", e.addr, e.err) }

// opError is err as package net has it, for errors.As.
func opError(op, addr string, err error) *net.OpError {
	e := &net.OpError{Op: op, Net: "tcp", Err: opReason{err}}
	if at, bad := netip.ParseAddrPort(addr); bad == nil {
		e.Addr = net.TCPAddrFromAddrPort(at)
	}
	return e
}

// opReason has net.OpError, which asks what it wraps directly, know of a time-out further inside.
type opReason struct{ error }

func (e opReason) Unwrap() error { return e.error }
func (e opReason) Timeout() bool { return isTimeout(e.error) }

func isTimeout(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}
