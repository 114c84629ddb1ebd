package wq

import "fmt"

// Status of a Completion; in brackets what the verbs call it. All but Success are the end of the
// connection, and Err tells more.
//
// Outside of acknowledged mode (rnic.ConnParam.Acknowledged) two cannot occur: TCP retransmits
// (retry exceeded), and what the peer refuses of a Send or Write, a missing receive buffer too
// (receiver not ready), it says by its Terminate when that request has completed already: Err has
// it, and no Completion. A Completion's place is reserved when its request is posted (no overflow).
type Status uint8

const (
	Success Status = iota // (success)
	// LocalProtection: a range was not registered, was revoked, or lacks the right (local
	// protection error).
	LocalProtection
	// LocalLength: receive: the message was longer than the buffer; of a WorkSource, a request that
	// it refused for that (local length error).
	LocalLength
	// Flushed: the QueuePair left service before the request was carried out, or before that could
	// be told (flushed).
	Flushed

	RemoteAccess // Read or atomic: the peer did not grant it (remote access error)
	// RemoteInvalidRequest: of a Read or atomic: the peer does not serve it, or not so many, or the
	// word is not aligned (remote invalid request error).
	RemoteInvalidRequest
	// RemoteOperation: Read or atomic: the peer could not carry it out (remote operation error).
	RemoteOperation
	BadResponse // Read or atomic: what came back is no Response to it (bad response error)
	// LocalOperation: Local Invalidate: the STag is not one that this queue pair may invalidate; of
	// a WorkSource, what it refused for that (local queue pair operation error).
	LocalOperation
	// RNRRetryExceeded: in acknowledged mode: the peer had no receive buffer for the message as often
	// as it was sent (receiver not ready retry counter exceeded).
	RNRRetryExceeded
	// RetryExceeded: in acknowledged mode: the peer has not acknowledged the request in time, or the
	// connection ended before that (transport retry counter exceeded).
	RetryExceeded
	// WindowBind: of a C program's request to bind a window: it is bound, or may not be like that
	// (memory window bind error).
	WindowBind
)

func (s Status) String() string {
	switch s {
	case Success:
		return "success"
	case LocalProtection:
		return "local protection error"
	case LocalLength:
		return "local length error"
	case Flushed:
		return "flushed"
	case RemoteAccess:
		return "remote access error"
	case RemoteInvalidRequest:
		return "remote invalid request error"
	case RemoteOperation:
		return "remote operation error"
	case BadResponse:
		return "bad response"
	case LocalOperation:
		return "local operation error"
	case RNRRetryExceeded:
		return "receiver not ready retries exceeded"
	case RetryExceeded:
		return "retries exceeded"
	case WindowBind:
		return "window bind error"
	}
	return fmt.Sprintf("status %d", uint8(s))
}
