// Package qp is the engine of a queue pair: octets of FPDUs in and out, work requests in,
// completions out. It knows no connection, no transport and no clock. Engine.Effects says what a
// call means for the connection; the one call up is Config.Tell, which posts an event.
//
// Its files, in reading order:
//
//	engine.go           Engine and its life
//	post.go             work requests in
//	send.go             work requests to FPDUs
//	localinvalidate.go  a request that sends nothing
//	recv.go             FPDUs to memory and completions
//	rtr.go              messages of start-up's own
//	shared.go           receive buffers from an SRQ
//	invalidate.go       messages that do more than fill a buffer
//	requester.go        what this end has asked of the peer
//	responder.go        what the peer has asked of this end
//	terminate.go        errors on the wire
//	gather.go           where the octets of a message are
//	scatter.go          where they go
//	watch.go            thresholds
//	fortest.go          what tests of other packages ask of an engine
//	completionbatch.go  completions that are published together
//	effects.go          Effects: what a call means for the connection
//	state.go            states and events
//	srq.go              SRQ: receive buffers for several engines
//	cq.go               CQ: completions of several engines
//	wqe.go              a work request as the rings have it
//	fifo.go             a bounded queue of one goroutine
//	op.go               opcodes, statuses, completions, ranges
//	errors.go           errors of posting, and why an engine leaves service
//	limits.go           limits
package qp
