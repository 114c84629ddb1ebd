package qp

import "runtime/debug"

// Registered memory can go away under the engine: the application unmaps it, takes its rights away,
// or cuts the file shorter that is mapped there. The processor's fault is then an error of this
// connection, not the end of the process.
//
// Whatever touches registered memory has debug.SetPanicOnFault, and recovers from a fault at an
// address of a region. Each burst does that once: all that was placed or sent before the fault
// stands, and nothing that follows is. Any other fault or panic goes on.
//
//	placing a Write, a Read Response, a Send  recoverPlacement  local catastrophic error of DDP
//	sending from it                           recoverGather     LocalProtection
//	answering a Read                          recoverGather     catastrophic error, of the stream
//	an atomic                                 recoverWord       remote operation error
//	the word before                           recoverWord       LocalProtection

// unreachable says whether a panic, as recover returned it, is a fault at an address of a region,
// and notes that. nil: there was none. It panics again with any other.
func (q *Engine) unreachable(recovered any) bool {
	if !q.Table.Unreachable(recovered) {
		return false
	}
	q.recv.lost = errUnreachable
	return true
}

// recoverWord leaves it to its caller to find that the word was not reached.
func (q *Engine) recoverWord(faults bool) {
	debug.SetPanicOnFault(faults)
	q.unreachable(recover())
}
