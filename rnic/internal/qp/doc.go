// Package qp is the engine of a queue pair: octets of FPDUs in and out, work requests in, completions out. It knows no connection,
// no transport and no clock. It never calls up: Engine.Effects says what a call means for the connection.
//
// Its files, in reading order:
//
//	engine.go           Engine and its life
//	post.go             work requests in
//	send.go             work requests to FPDUs
//	gather.go           where their octets are
//	localinvalidate.go  a request that sends nothing
//	recv.go             FPDUs to memory and completions
//	scatter.go          receive buffers
//	invalidate.go       messages that do more than fill one
//	requester.go        what this end has asked of the peer
//	responder.go        what the peer has asked of this end
//	rtr.go              messages of start-up's own
//	watch.go            thresholds
//	terminate.go        errors on the wire
//	completionbatch.go  completions that are published together
//	srq.go              SRQ: receive buffers for several engines
//	cq.go               CQ: completions of several engines
//	wqe.go              a work request as the rings have it
//	fifo.go             a bounded queue of one goroutine
//	op.go               opcodes, statuses, completions, ranges
//	state.go            states and events
//	errors.go           errors of posting, and why an engine leaves service
//	limits.go           limits
//	fortest.go          what tests of other packages ask of an engine
package qp
