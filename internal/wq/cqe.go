package wq

import (
	"fmt"
	"sync/atomic"
)

// CQE is a completion, as the application and rings have it: 64 octets, fixed, free of pointers.
type CQE struct {
	ID     uint64
	QP     uint32 // QueuePair.Number
	Len    uint32 // octets of the message
	Op     Opcode
	Status Status
	// Solicited: the peer asked for an event with this message.
	Solicited bool
	// WithImmediate: the message was immediate data, which Immediate has, or BesideSend.
	WithImmediate bool
	// Invalidated is the STag of ours that the peer's message invalidated, or 0. Nothing is placed
	// through it any more: the memory can be read without Revoke.
	Invalidated STag
	// Original, of an atomic: the value of the peer's word before. Of a datagram: the number of the
	// queue pair that has sent it, and perhaps DatagramFromV4
	Original  uint64
	Immediate [8]byte
	// Written, of immediate data, bounds what the peer may say that it has written: the octets of
	// its last Write, and 0 where none came since the immediate data before. While octets arrive
	// out of order, later Writes may be counted, too.
	Written uint32
	seq     uint32 // Publish
	// Terminate, of a request that failed, is that which ended the stream (RFC 5040 section 4.8), as
	// TerminateOf puts it; 0: none did
	Terminate uint32
	// BesideSend: the immediate data is the first 4 octets of Immediate, and came with a Send, whose
	// octets are in the buffer.
	BesideSend bool
	_          [3]byte
	time       uint64 // Stamp
}

// Stamp keeps in c when it was published, in nanoseconds, for a C program that wants to know.
func Stamp(c *CQE, ns uint64) { c.time = ns }

// Which end has sent a Terminate, in CQE.Terminate.
const (
	TerminatePeer = 1 << 16
	TerminateOwn  = 1 << 17
)

// TerminateOf is a Terminate as one number: its Control field's layer, type and code as they are on
// the wire, and above them which end has sent it.
func TerminateOf(remote bool, layer, errType, code uint8) uint32 {
	n := uint32(layer&15)<<12 | uint32(errType&15)<<8 | uint32(code)
	if remote {
		return n | TerminatePeer
	}
	return n | TerminateOwn
}

// Publish copies *c to slot, an entry of a ring that another thread polls, which then finds it
// there: position is the entry's, and *c may change until the next time.
func Publish(slot, c *CQE, position uint32) {
	c.seq = position // is none that says that the entry is there, however much of it is copied
	*slot = *c
	atomic.StoreUint32(&slot.seq, position+1)
}

// There says whether slot holds the completion of a position.
func There(slot *CQE, position uint32) bool {
	return atomic.LoadUint32(&slot.seq) == position+1
}

func (c CQE) String() string {
	text := fmt.Sprintf("%v %d of queue pair %d: %v, %d octets", c.Op, c.ID, c.QP, c.Status, c.Len)
	if c.Invalidated != 0 {
		text += fmt.Sprintf(", STag 0x%08x invalidated", uint32(c.Invalidated))
	}
	if c.Status == Success && (c.Op == OpFetchAdd || c.Op == OpCompareSwap) {
		text += fmt.Sprintf(", the word was 0x%x", c.Original)
	}
	if c.Terminate != 0 {
		text += fmt.Sprintf(", Terminate 0x%x", c.Terminate)
	}
	return text
}
