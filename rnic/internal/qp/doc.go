// Package qp is the engine of a queue pair: octets of FPDUs in and out, work requests in,
// completions out. It has no connection, transport or clock. Engine.TakeEffects returns what the
// connection has to do after calls of the engine; the only call up is Config.Teller, which posts
// an event.
//
// Its files, in reading order:
//
//	engine.go           Engine and its life
//	service.go          what it has while it is in service
//	post.go             work requests onto the rings
//	send.go             work requests to messages, messages to FPDUs
//	gather.go           where the octets of a message are
//	reliability.go      acknowledged mode, and what it says
//	segment.go          FPDUs written to a segment
//	recv.go             octets to memory
//	deliver.go          finished messages to completions
//	accept.go           what is placed in acknowledged mode
//	acknowledged.go     requests of this end in that mode
//	written.go          how much the peer has written
//	scatter.go          receive buffers: from the ring to Placement
//	source.go           work that waits elsewhere
//	fromsrq.go          receive buffers from an SRQ
//	terminate.go        errors: one Terminate, and the end of the stream
//	requester.go        Reads and atomics of this end
//	sinks.go            which Read a segment of a Response belongs to
//	responder.go        Reads and atomics of the peer
//	permit.go           what the peer may do at all
//	control.go          memory for the peer's Terminate, Requests and Atomic Responses
//	unreachable.go      memory that has gone away
//	rtr.go              the message of start-up that an Initiator owes
//	watch.go            thresholds
//	stats.go            counters
//	completionbatch.go  completions that are published together
//	acks.go             what is acknowledged, in both directions
//	retry.go            how often, and how long, a peer that is not ready is waited for
//	shared.go           what engines of one goroutine share
//	effects.go          what the connection has to do after a call
//	state.go            states and events
//	srq.go              SRQ: receive buffers for several engines
//	cq.go               CQ: completions of several engines
//	wqe.go              a work request as the rings have it
//	fifo.go             a bounded queue of one goroutine
//	errors.go           errors, and the Terminate that each becomes
//	limits.go           limits, sizes and constants
package qp
