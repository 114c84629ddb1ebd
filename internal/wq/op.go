package wq

import "fmt"

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
	// host's byte order. ORD counts it as it does Reads.
	OpFetchAdd
	// OpCompareSwap is OpFetchAdd for the operands in CompareSwap; Original tells whether the word
	// was swapped. With masks that leave bits out, an SGEMax of 1 and NoInline it counts as two of
	// SendDepth.
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
	// OpSendImmediate is OpSend with the first 4 octets of Immediate beside the message, which the
	// peer finds in its Completion. It exists in acknowledged mode only (ConnParam.Acknowledged):
	// iWARP has no such message.
	OpSendImmediate
	// OpWriteImmediate is OpWrite, and then OpImmediate of imm_data and the length that was written.
	// It stands in rings of C programs only; the engine carries out the two.
	OpWriteImmediate
	// OpBindWindow binds a window of type 2 to a region and this queue pair, when all that was posted
	// before was begun. It stands in rings of C programs only; the engine carries it out.
	OpBindWindow
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
	case OpSendImmediate:
		return "Send with Immediate"
	case OpWriteImmediate:
		return "RDMA Write with Immediate"
	case OpBindWindow:
		return "Bind Window"
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// Extended says whether RFC 7306 defines it.
func (o Opcode) Extended() bool { return o.IsAtomic() || o == OpImmediate }

// IsRequest says whether the peer has to answer.
func (o Opcode) IsRequest() bool { return o == OpRead || o.IsAtomic() }

func (o Opcode) IsAtomic() bool { return o == OpFetchAdd || o == OpCompareSwap }

// HasList says whether a request may have several ranges, HasInline whether its octets may come
// with it.
func (o Opcode) HasList() bool { return o == OpRecv || o.HasInline() }
func (o Opcode) HasInline() bool {
	return o == OpSend || o == OpSendInvalidate || o == OpWrite || o == OpSendImmediate
}
