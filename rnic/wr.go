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
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// Status of a Completion.
type Status uint8

const (
	Success         Status = iota
	LocalProtection        // the local range was not registered, was revoked, or lacks the right
	LocalLength            // receive: the message was longer than the buffer
	Flushed                // the QueuePair left service before the work request was carried out
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
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// SGE is a range of registered local memory. MemoryRegion.Slice makes one.
type SGE struct {
	STag   mem.STag
	Length uint32
	Offset uint64 // tagged offset (TO): Base of the region counts
}

// WorkRequest is a fixed 64-octet, pointer-free ring entry.
type WorkRequest struct {
	ID           uint64   // returned in the Completion
	Local        SGE      // what to send, or the buffer to receive into
	RemoteOffset uint64   // Write: tagged offset at the peer
	RemoteSTag   mem.STag // Write: where to; Send with Invalidate: what to invalidate
	Op           Opcode   // set by the posting call
	Signaled     bool     // success yields a Completion; failures always do
	_            [26]byte
}

// Completion is a fixed 64-octet, pointer-free ring entry.
type Completion struct {
	ID     uint64
	QP     uint32 // QueuePair.Number
	Len    uint32 // octets of the message
	Op     Opcode
	Status Status
	// Invalidated is the STag of ours that the peer's message invalidated, or 0. It is so already, and no octet is placed
	// through it any more: no Revoke is needed before the memory is looked at.
	Invalidated mem.STag
	_           [40]byte
}

func (c Completion) String() string {
	text := fmt.Sprintf("%v %d of queue pair %d: %v, %d octets", c.Op, c.ID, c.QP, c.Status, c.Len)
	if c.Invalidated != 0 {
		text += fmt.Sprintf(", STag 0x%08x invalidated", uint32(c.Invalidated))
	}
	return text
}
