package rnic

// extended says whether it is RFC 7306's.
func (o Opcode) extended() bool { return o == OpFetchAdd || o == OpCompareSwap || o == OpImmediate }

// isRequest says whether the peer has to answer.
func (o Opcode) isRequest() bool { return o >= OpRead && o <= OpCompareSwap }

// hasLocal says whether a request of the send queue is about a range of local memory.
func (o Opcode) hasLocal() bool { return o <= OpRead }
