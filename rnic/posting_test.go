package rnic

// errOf is the error of a posting call whose count does not matter.
func errOf(_ int, err error) error { return err }

// as is wr with another opcode; fetchAdd, fetchAddFields, compareSwap and immediate add its
// operands.
func as(op Opcode, wr WorkRequest) WorkRequest {
	wr.Op = op
	return wr
}

func fetchAdd(wr WorkRequest, add uint64) WorkRequest { return fetchAddFields(wr, add, 0) }

func fetchAddFields(wr WorkRequest, add, boundary uint64) WorkRequest {
	wr.Op, wr.Add, wr.Boundary = OpFetchAdd, add, boundary
	return wr
}

func compareSwap(wr WorkRequest, c CompareSwap) WorkRequest {
	wr.Op, wr.CompareSwap = OpCompareSwap, c
	return wr
}

func immediate(wr WorkRequest, data [8]byte) WorkRequest {
	wr.Op, wr.Immediate = OpImmediate, data
	return wr
}

// poster posts requests as one of an opcode; OpRecv is a receive buffer.
func poster(q *QueuePair, op Opcode) func(WorkRequest) error {
	return func(wr WorkRequest) error {
		if op == OpRecv {
			return errOf(q.PostRecv(wr))
		}
		return errOf(q.PostSend(as(op, wr)))
	}
}
