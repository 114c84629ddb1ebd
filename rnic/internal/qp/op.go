package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
)

// Opcode of a work request and its completion. rnic has the same ones, and says what each does.
type Opcode uint8

const (
	OpSend Opcode = iota + 1
	OpWrite
	OpRecv
	OpSendInvalidate
	OpRead
	OpFetchAdd
	OpCompareSwap
	OpImmediate
	OpLocalInvalidate
)

// extended says whether RFC 7306 defines it.
func (o Opcode) extended() bool { return o == OpFetchAdd || o == OpCompareSwap || o == OpImmediate }

// isRequest says whether the peer has to answer.
func (o Opcode) isRequest() bool { return o >= OpRead && o <= OpCompareSwap }

func (o Opcode) isAtomic() bool { return o == OpFetchAdd || o == OpCompareSwap }

// hasLocal says whether a request of the send queue names local memory.
func (o Opcode) hasLocal() bool { return o <= OpRead }

// Status of a completion, as rnic.Status.
type Status uint8

const (
	Success Status = iota
	LocalProtection
	LocalLength
	Flushed
	RemoteAccess
	RemoteInvalidRequest
	RemoteOperation
	BadResponse
	LocalOperation
)

// SGE is a range of registered local memory.
type SGE struct {
	STag   mem.STag
	Length uint32
	Offset uint64 // tagged offset (TO)
}

// CQE is a completion as the ring of a CQ has it: 64 octets, fixed, free of pointers.
// rnic.Completion has the same layout, and says what the fields are.
type CQE struct {
	ID            uint64
	QP            uint32
	Len           uint32
	Op            Opcode
	Status        Status
	Solicited     bool
	WithImmediate bool
	Invalidated   mem.STag
	Original      uint64
	Immediate     [8]byte
	Written       uint32
	_             [20]byte
}

// rangeOf is s as DDP has it.
func rangeOf(s SGE) ddp.Range { return ddp.Range{STag: s.STag, Len: s.Length, TO: s.Offset} }
