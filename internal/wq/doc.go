// Package wq is the vocabulary of work queues: opcodes, statuses, states, events, ranges of memory,
// and the two entries of 64 octets that rings of requests and of completions hold. There is one of
// each: rnic shows them by type aliases, rnic/internal/qp works with them, and C programs read and
// write them in shared memory, by the header that verbs generates from this package.
//
// It imports nothing of this module and has no state.
//
//	op.go      what a request asks for
//	status.go  what became of it
//	state.go   where a queue pair stands
//	event.go   what happens without a request
//	sge.go     a range of registered memory, laid out as ibv_sge
//	wqe.go     a request as rings hold it
//	request.go a request out of its ring
//	cqe.go     a completion as rings hold it
package wq
