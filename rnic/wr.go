package rnic

import (
	"fmt"

	"github.com/rnicd/rnicd/mem"
)

// Opcode of a work request and its Completion.
type Opcode uint8

const (
	OpSend  Opcode = iota + 1 // untagged message into the peer's next receive buffer
	OpWrite                   // tagged message into the peer's registered memory
	OpRecv                    // a receive buffer was filled
	// OpSendInvalidate is OpSend that takes an STag of the peer's away from us: Send with Invalidate.
	OpSendInvalidate
	OpRead        // from the peer's registered memory into ours
	OpFetchAdd    // atomic addition to a word of the peer's
	OpCompareSwap // atomic comparison and swap of a word of the peer's
	OpImmediate   // a message of 8 octets for the peer's Completion
	// OpLocalInvalidate takes an STag of this end away from the peer; nothing is sent.
	OpLocalInvalidate
)

// extended says whether it is RFC 7306's.
func (o Opcode) extended() bool { return o == OpFetchAdd || o == OpCompareSwap || o == OpImmediate }

// asks says whether the peer has to answer.
func (o Opcode) asks() bool { return o >= OpRead && o <= OpCompareSwap }

// hasLocal says whether a request of the send queue is about a range of local memory.
func (o Opcode) hasLocal() bool { return o <= OpRead }

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

// Status of a Completion; in brackets what the verbs call it. All but Success are the end of the connection, and Err tells more.
//
// The verbs' other ones cannot occur: TCP retransmits (retry exceeded), a Completion's place is reserved when its request is
// posted (no overflow), and what the peer refuses of a Send or Write, a missing receive buffer too (receiver not ready), it says
// by its Terminate when that request has completed already: Err has it, and no Completion.
type Status uint8

const (
	Success Status = iota // (success)
	// LocalProtection: a range was not registered, was revoked, or lacks the right (local protection error).
	LocalProtection
	LocalLength // receive: the message was longer than the buffer (local length error)
	// Flushed: the QueuePair left service before the request was carried out, or before that could be told (flushed).
	Flushed

	RemoteAccess         // Read or atomic: the peer did not grant it (remote access error)
	RemoteInvalidRequest // Read or atomic: the peer does not serve it, or not so many (remote invalid request error)
	// RemoteOperation: of a Read or atomic: the peer could not carry it out, as when the word is not aligned (remote operation error).
	RemoteOperation
	BadResponse    // Read or atomic: what came back is no Response to it (bad response error)
	LocalOperation // Local Invalidate: the STag is not one that this queue pair may invalidate (local queue pair operation error)
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
	STag   mem.STag
	Length uint32
	Offset uint64 // tagged offset (TO): Base of the region counts
}

// WorkRequest says what is to be sent, read or received into. The posting call copies it, List and Inline too: both are the
// caller's again when it returns, and may be on the stack. The registered octets that Local and List name are the
// QueuePair's until the request has completed.
type WorkRequest struct {
	ID    uint64 // returned in the Completion
	Local SGE    // what to send, or the buffer to receive or read into
	// List are ranges that follow Local: what to send is gathered from them, a message that is received is scattered over them,
	// in their order. QPOptions.SGEMax counts Local too. Ranges of no octets may stand anywhere; none of their STags is looked
	// at. A Read has one sink, and no List.
	List []SGE
	// Inline is what to send, instead of Local and List: octets of any memory, at most QPOptions.InlineMax of them, which need
	// no registration. Send, Send with Invalidate, Write. Of no octets it is as if it were not there.
	Inline       []byte
	RemoteOffset uint64   // Write, Read, atomic: tagged offset at the peer
	RemoteSTag   mem.STag // Write, Read, atomic: where to or from; Send with Invalidate: what to invalidate
	LocalSTag    mem.STag // Local Invalidate: what to invalidate
	Op           Opcode   // for Post; the other posting calls know theirs
	Signaled     bool     // success yields a Completion; failures always do
	Solicited    bool     // Send, Send with Invalidate, immediate data: with Solicited Event
	// Fence: begin only when every Read and atomic posted before has been answered. Without, a Write or an atomic that follows a
	// Read may change at the peer what is still to be read there (RFC 5040 section 5.5, rule 12), and a Send with Invalidate of the STag
	// that is read through ends the connection where it is carried out first (rule 18).
	Fence bool
}

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
	// Invalidated is the STag of ours that the peer's message invalidated, or 0. It is so already, and no octet is placed
	// through it any more: no Revoke is needed before the memory is looked at.
	Invalidated mem.STag
	Original    uint64 // atomic: the value of the peer's word before
	Immediate   [8]byte
	_           [24]byte
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
