package rnic

import "github.com/rnicd/rnicd/internal/wq"

// The vocabulary of work, which package wq explains value by value.
type (
	Opcode = wq.Opcode // of a work request and its Completion
	// of a Completion: all but Success are the end of the connection, and Err tells more
	Status     = wq.Status
	SGE        = wq.SGE // a range of registered local memory: MemoryRegion.Slice makes one
	Completion = wq.CQE // 64 octets, free of pointers
)

const (
	OpSend            = wq.OpSend
	OpWrite           = wq.OpWrite
	OpRecv            = wq.OpRecv
	OpSendInvalidate  = wq.OpSendInvalidate
	OpRead            = wq.OpRead
	OpFetchAdd        = wq.OpFetchAdd
	OpCompareSwap     = wq.OpCompareSwap
	OpImmediate       = wq.OpImmediate
	OpLocalInvalidate = wq.OpLocalInvalidate
	OpSendImmediate   = wq.OpSendImmediate

	Success              = wq.Success
	LocalProtection      = wq.LocalProtection
	LocalLength          = wq.LocalLength
	Flushed              = wq.Flushed
	RemoteAccess         = wq.RemoteAccess
	RemoteInvalidRequest = wq.RemoteInvalidRequest
	RemoteOperation      = wq.RemoteOperation
	BadResponse          = wq.BadResponse
	LocalOperation       = wq.LocalOperation
	RNRRetryExceeded     = wq.RNRRetryExceeded
	RetryExceeded        = wq.RetryExceeded
)

// WorkRequest says what is to be sent, read or received into. The posting call copies it, List and
// Inline too: both are the caller's again when it returns, and may be on the stack. The registered
// octets that Local and List name are the QueuePair's until the request has completed.
type WorkRequest struct {
	ID    uint64 // returned in the Completion
	Local SGE    // what to send, or the buffer to receive or read into
	// List are ranges that follow Local: what to send is gathered from them, a message that is
	// received is scattered over them, in their order. QPOptions.SGEMax counts Local too. Ranges of
	// no octets may stand anywhere; none of their STags is looked at. A Read has one sink, and no
	// List.
	List []SGE
	// Inline is what to send, instead of Local and List: octets of any memory, at most
	// QPOptions.InlineMax of them, which need no registration. Write, and Sends of each kind.
	// Of no octets it is as if it were not there.
	Inline       []byte
	RemoteOffset uint64 // Write, Read, atomic: tagged offset at the peer
	// Write, Read, atomic: where to or from; Send with Invalidate: what to invalidate
	RemoteSTag STag
	LocalSTag  STag   // Local Invalidate: what to invalidate
	Op         Opcode // what PostSend is to do; PostRecv needs none
	Signaled   bool   // success yields a Completion; failures always do
	Solicited  bool   // Sends of each kind, immediate data: with Solicited Event
	// Fence: begin only when every Read and atomic posted before has been answered. Without, a
	// Write or an atomic that follows a Read may change at the peer what is still to be read there
	// (RFC 5040 section 5.5, rule 12), and a Send with Invalidate of the STag that is read through
	// ends the connection where it is carried out first (rule 18).
	Fence bool

	// Fetch and Add adds Add. Each bit of Boundary is the highest of a field, from which nothing
	// is carried (RFC 7306 section 5.1.1); 0 is one field of 64 bits.
	Add, Boundary uint64
	CompareSwap   CompareSwap
	Immediate     [8]byte // immediate data; of Send with Immediate the first 4 octets
}

// CompareSwap are the operands of Compare and Swap: if the word equals Compare in all bits of
// CompareMask, its bits of SwapMask become Swap's.
type CompareSwap struct{ Compare, CompareMask, Swap, SwapMask uint64 }
