package iperf3

import (
	"errors"
	"fmt"
	"syscall"
)

// Code is a number of iperf3's error list, which a server sends after SERVER_ERROR.
type Code int32

// The codes that our server sends.
const (
	CodeDuration    Code = 5   // IEDURATION
	CodeNumStreams  Code = 6   // IENUMSTREAMS
	CodeBlockSize   Code = 7   // IEBLOCKSIZE
	CodeOmit        Code = 12  // IEOMIT
	CodeUnimp       Code = 13  // IEUNIMP
	CodeNoSCTP      Code = 18  // IENOSCTP
	CodeTOS         Code = 21  // IEBADTOS
	CodeReverseBidi Code = 25  // IEREVERSEBIDIR
	CodeParams      Code = 114 // IERECVPARAMS
	CodeResults     Code = 117 // IERECVRESULTS
	CodeProtocol    Code = 131 // IEPROTOCOL
	CodeCongestion  Code = 134 // IESETCONGESTION
	CodeAccept      Code = 204 // IESTREAMACCEPT
	CodeRead        Code = 206 // IESTREAMREAD
	CodeStreamID    Code = 208 // IESTREAMID
)

var codeText = map[Code]string{
	CodeDuration:    "test duration too long",
	CodeNumStreams:  "number of parallel streams too large",
	CodeBlockSize:   "block size too large",
	CodeOmit:        "bogus value for --omit",
	CodeUnimp:       "an option is not implemented",
	CodeNoSCTP:      "no SCTP support",
	CodeTOS:         "bad TOS value",
	CodeReverseBidi: "cannot be both reverse and bidirectional",
	CodeParams:      "unable to receive parameters",
	CodeResults:     "unable to receive results",
	CodeProtocol:    "protocol does not exist",
	CodeCongestion:  "unable to set the congestion control",
	CodeAccept:      "unable to accept a data connection",
	CodeRead:        "unable to read from a data connection",
	CodeStreamID:    "stream has an invalid ID",
}

// ProtocolError is the peer's fault: what it sent, or did not send. Code is what a server answers
// with.
type ProtocolError struct {
	Code   Code
	Reason string
	Err    error // nil, or what the connection said
}

func (e *ProtocolError) Error() string {
	if e.Err != nil {
		return "iperf3: " + e.Reason + ": " + e.Err.Error()
	}
	return "iperf3: " + e.Reason
}

func (e *ProtocolError) Unwrap() error { return e.Err }

func refusal(code Code, format string, args ...any) *ProtocolError {
	return &ProtocolError{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// RemoteError is what a server sent after SERVER_ERROR.
type RemoteError struct {
	Code  Code
	Errno syscall.Errno // 0: none
}

func (e *RemoteError) Error() string {
	text, ok := codeText[e.Code]
	if !ok {
		text = "see iperf_api.h"
	}
	if e.Errno != 0 {
		text += ": " + e.Errno.Error()
	}
	return fmt.Sprintf("iperf3: the server reports error %d (%s)", e.Code, text)
}

// What the other side may say at any time.
var (
	ErrBusy       = errors.New("iperf3: the server is busy with another test; try again later")
	ErrTerminated = errors.New("iperf3: the peer ended the test early")
)
