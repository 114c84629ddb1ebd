package connect

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/rnicd/rnicd/mpa"
)

// Errors that rnic has too, and describes.
var (
	ErrClosed         error = closedError{}
	ErrState                = errors.New("rnic: not possible in the queue pair's state")
	ErrStartupTimeout error = timeoutError("rnic: no MPA start-up frame from the peer in time")
	ErrPeerClosed           = errors.New("rnic: peer closed the connection")
	ErrLinger         error = timeoutError(
		"rnic: peer did not close its half of the connection in time")
	ErrUnread = errors.New(
		"rnic: octets of the peer's are unread: streaming mode must be read to its end, and not " +
			"beyond, before MPA starts")
	ErrUnanswered = errors.New(
		"rnic: peer closed its half of the connection with Reads unanswered")
	ErrUnacknowledged = errors.New(
		"rnic: peer closed its half of the connection with requests unacknowledged")
	ErrNoAnswer error = timeoutError("rnic: no acknowledgement of the peer's in time")

	ErrFirstMarker error = &mpa.Error{Code: mpa.ErrMarker,
		What: "the first octets are no marker of culley-02"}
)

// closedError is a net.ErrClosed for errors.Is.
type closedError struct{}

func (closedError) Error() string { return "rnic: closed" }
func (closedError) Unwrap() error { return net.ErrClosed }

// timeoutError is a net.Error, and a syscall.ETIMEDOUT for errors.Is.
type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (timeoutError) Unwrap() error   { return syscall.ETIMEDOUT }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// Rejection is a Reply with the R bit, as rnic.RejectedError says.
type Rejection struct {
	PrivateData []byte
	Asked       mpa.Dialect
	Rev         int
	Enhanced    bool
	IRD, ORD    int
	Conn        net.Conn
}

func (e *Rejection) Error() string { return "rnic: connection rejected by the peer" }

// Revision is a start-up frame of a revision or a dialect that is not served, as rnic.RevisionError
// says.
type Revision struct {
	Revision     int
	Asked        mpa.Dialect
	Served       mpa.Dialects
	Reply, Lower bool
}

func (e *Revision) Error() string {
	return fmt.Sprintf("rnic: MPA revision %d is not served", e.Revision)
}

// connectionError is MPA's error 1 (RFC 5044 section 8), which the transport caused: it was reset,
// timed out, or closed by the peer where that is no graceful end. errors.Is finds the cause,
// errors.As an *mpa.Error with code 1.
type connectionError struct{ both [2]error } // the cause, and errConnection

func newConnectionError(cause error) error {
	return &connectionError{[2]error{cause, errConnection}}
}

func (e *connectionError) Error() string   { return e.both[0].Error() }
func (e *connectionError) Unwrap() []error { return e.both[:] }

var errConnection = &mpa.Error{Code: mpa.ErrConnection,
	What: "TCP connection closed, terminated or lost"}

// Reasons that rnic has no name for.
var (
	errClosedEarly     = errors.New("rnic: connection closed")
	errUnacknowledging = errors.New(
		"rnic: ConnParam.Acknowledged, and the dialect of the connection has no such messages")
	ErrUndecided = errors.New("rnic: the connection request was neither accepted nor " +
		"rejected in time")
	ErrPipelined = errors.New("rnic: peer sent more after its MPA Request, unanswered, than is " +
		"kept for it")
)
