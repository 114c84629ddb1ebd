package rnic

import (
	"fmt"
)

// Opcode of a work request and its Completion.
type Opcode uint8

const (
	// OpSend sends Local and List, or Inline, into the peer's next receive buffer; Solicited asks
	// for an event there.
	OpSend Opcode = iota + 1
	// OpWrite writes Local and List, or Inline, to RemoteSTag at RemoteOffset: one run of octets
	// there.
	OpWrite
	// OpRecv is a receive buffer, Local and List, that was filled.
	OpRecv
	// OpSendInvalidate is OpSend that also gives the peer's STag RemoteSTag back: when the peer has
	// received it nothing can be placed or read through that any more, and the peer's Completion
	// says so. The peer must have granted it to this QueuePair alone; otherwise its Terminate ends
	// the connection. A Read or an atomic through the STag that was posted before is not waited
	// for, and ends the connection if it is too late: set Fence.
	OpSendInvalidate
	// OpRead reads Local.Length octets from RemoteSTag at RemoteOffset into Local, which needs
	// LocalWrite and no remote right; it has one sink, and no List. No more than ORD Reads and
	// atomics are under way at a time; the others, and what was posted after them, wait. The octets
	// are there, and stay, when the Completion was polled; before that and after a failure they are
	// indeterminate.
	OpRead
	// OpFetchAdd adds Add to the 64-bit word at RemoteOffset of RemoteSTag, which must be aligned
	// there; the peer must have granted RemoteRead and RemoteWrite. The word's value before comes
	// in Completion.Original, and in Local if that has octets: 8 of them, with LocalWrite, in this
	// host's byte order. With an SGEMax of 1 and NoInline it counts as two of SendDepth then. ORD counts it as it does Reads.
	OpFetchAdd
	// OpCompareSwap is OpFetchAdd for the operands in CompareSwap; Original tells whether the word
	// was swapped.
	OpCompareSwap
	// OpImmediate sends the 8 octets of Immediate, which the peer finds in its Completion. It uses
	// up a receive buffer there, whose ranges are neither looked at nor written: a buffer without
	// any will do. Local is not used.
	OpImmediate
	// OpLocalInvalidate takes LocalSTag, a region or a bound window of this end, away from the
	// peer; nothing is sent. When all that was posted before has been sent, and before anything
	// posted after it is, the peer cannot reach anything through the STag any more. It may name
	// what a peer's Send with Invalidate may (RFC 5040 section 8.1.1): an STag with remote rights
	// that was made For this QueuePair. Those of several QueuePairs are ended by
	// MemoryRegion.Revoke and Window.Unbind.
	//
	// Sends and Writes posted before from the STag are not harmed: their octets have been copied by
	// then. A Read into it that is under way is, unless the request has Fence: its Response finds
	// no sink and ends the connection. So does anything that still needs the STag: a Read of the
	// peer's, a receive buffer, a later request that sends from it. A region stays registered, for
	// Revalidate or Deregister; windows onto it end with it; a window can be bound again.
	//
	// It completes with Success, or with LocalOperation for an STag that it may not name or that is
	// not valid (any more): like other local errors that ends the connection.
	OpLocalInvalidate
)

func (o Opcode) String() string {
	switch o {
	case OpSend:
		return "Send"
	case OpWrite:
		return "RDMA Write"
	case OpRecv:
		return "Receive"
	case OpSendInvalidate:
		return "Send with Invalidate"
	case OpRead:
		return "RDMA Read"
	case OpFetchAdd:
		return "Fetch and Add"
	case OpCompareSwap:
		return "Compare and Swap"
	case OpImmediate:
		return "Immediate Data"
	case OpLocalInvalidate:
		return "Local Invalidate"
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// Status of a Completion; in brackets what the verbs call it. All but Success are the end of the
// connection, and Err tells more.
//
// The verbs' other ones cannot occur: TCP retransmits (retry exceeded), a Completion's place is
// reserved when its request is posted (no overflow), and what the peer refuses of a Send or Write,
// a missing receive buffer too (receiver not ready), it says by its Terminate when that request has
// completed already: Err has it, and no Completion.
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
	RemoteOperation // Read or atomic: the peer could not carry it out (remote operation error)
	BadResponse     // Read or atomic: what came back is no Response to it (bad response error)
	// LocalOperation: Local Invalidate: the STag is not one that this queue pair may invalidate; of
	// a WorkSource, what it refused for that (local queue pair operation error).
	LocalOperation
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
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// SGE is a range of registered local memory. MemoryRegion.Slice makes one.
type SGE struct {
	STag   STag
	Length uint32
	Offset uint64 // tagged offset (TO): Base of the region counts
}

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
	// QPOptions.InlineMax of them, which need no registration. Send, Send with Invalidate, Write.
	// Of no octets it is as if it were not there.
	Inline       []byte
	RemoteOffset uint64 // Write, Read, atomic: tagged offset at the peer
	RemoteSTag   STag   // Write, Read, atomic: where to or from; Send with Invalidate: what to invalidate
	LocalSTag    STag   // Local Invalidate: what to invalidate
	Op           Opcode // what PostSend is to do; PostRecv needs none
	Signaled     bool   // success yields a Completion; failures always do
	Solicited    bool   // Send, Send with Invalidate, immediate data: with Solicited Event
	// Fence: begin only when every Read and atomic posted before has been answered. Without, a
	// Write or an atomic that follows a Read may change at the peer what is still to be read there
	// (RFC 5040 section 5.5, rule 12), and a Send with Invalidate of the STag that is read through
	// ends the connection where it is carried out first (rule 18).
	Fence bool

	// Fetch and Add adds Add. Each bit of Boundary is the highest of a field, from which nothing
	// is carried (RFC 7306 section 5.1.1); 0 is one field of 64 bits.
	Add, Boundary uint64
	CompareSwap   CompareSwap
	Immediate     [8]byte // immediate data
}

// CompareSwap are the operands of Compare and Swap: if the word equals Compare in all bits of
// CompareMask, its bits of SwapMask become Swap's.
type CompareSwap struct{ Compare, CompareMask, Swap, SwapMask uint64 }

// Completion is a fixed 64-octet, pointer-free ring entry.
type Completion struct {
	ID     uint64
	QP     uint32 // QueuePair.Number
	Len    uint32 // octets of the message
	Op     Opcode
	Status Status
	// Solicited: the peer asked for an event with this message.
	Solicited bool
	// WithImmediate: the message was immediate data, which Immediate has.
	WithImmediate bool
	// Invalidated is the STag of ours that the peer's message invalidated, or 0. Nothing is placed
	// through it any more: the memory can be read without Revoke.
	Invalidated STag
	Original    uint64 // atomic: the value of the peer's word before
	Immediate   [8]byte
	// Written, of immediate data, bounds what the peer may say that it has written: the octets of
	// its last Write, and 0 where none came since the immediate data before. While octets arrive
	// out of order, later Writes may be counted, too.
	Written uint32
	_       [20]byte
}

func (c Completion) String() string {
	text := fmt.Sprintf("%v %d of queue pair %d: %v, %d octets", c.Op, c.ID, c.QP, c.Status, c.Len)
	if c.Invalidated != 0 {
		text += fmt.Sprintf(", STag 0x%08x invalidated", uint32(c.Invalidated))
	}
	if c.Status == Success && (c.Op == OpFetchAdd || c.Op == OpCompareSwap) {
		text += fmt.Sprintf(", the word was 0x%x", c.Original)
	}
	return text
}
