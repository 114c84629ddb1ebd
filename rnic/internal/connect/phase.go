package connect

import "time"

// phase of a connection. In service, its queue pair's engine sends and receives.
//
//	             start-up              in service                       the end
//	Responder:   connecting
//	               ├▶ request ─┬──────────────────────────────────────▶ rejecting ─▶ over
//	               └──────▶ decide ─┬──────────────────────────────────▶ rejecting ─▶ over
//	                                ├──────────────────────────────────▶ toStream ──▶ over
//	                                ├▶ rtrFrame ─▶ rtr ─▶ full ─────────────────────▶ over
//	                                ├────────────▶ rtr ─▶ full
//	                                ├────────▶ marker ──▶ full
//	                                └───────────────────▶ full
//	Initiator:   connecting
//	               ├▶ reply ─┬────────────────────────────────────────▶ rejecting ─▶ over
//	               │         ├────────────────────────────────────────▶ toStream ──▶ over
//	               │         └──────────────────────────▶ full ─────────────────────▶ over
//	               └──────────────────────▶ marker ──▶ full
//
// Each may go to over at once. A Responder goes to decide from request with the Request, without it
// in culley-02. It rejects a Request of a dialect that it does not serve without asking its ULP. An
// Initiator is rejecting after a Reply of another Revision; after one with R set the connection
// becomes a stream if the ULP keeps it, or is reset.
type phase uint8

const (
	phaseConnecting phase = iota
	phaseRequest
	phaseDecide
	phaseReply
	phaseRtrFrame // in service, except for what comes: first a Ready-to-Receive frame
	phaseMarker   // in service; the peer's first octets are still to be looked at (culley-02)
	phaseRtr      // in service; the Initiator owes its RTR message
	phaseFull     // in service
	phaseRejecting
	phaseToStream // the connection goes back to streaming mode (mpatostream.go)
	phaseOver
)

// inService says whether the engine sends.
func (p phase) inService() bool { return p >= phaseRtrFrame && p <= phaseFull }

// takesFPDUs says whether what comes is FPDUs without a further look.
func (p phase) takesFPDUs() bool { return p == phaseRtr || p == phaseFull }

// awaitsFrame says whether a start-up frame of the peer's is due.
func (p phase) awaitsFrame() bool {
	return p == phaseRequest || p == phaseReply || p == phaseRtrFrame
}

// awaitsRtr says whether a Responder is in service whose Initiator owes an Rtr frame or message.
func (p phase) awaitsRtr() bool { return p == phaseRtrFrame || p == phaseRtr }

// initiates says whether c is an Initiator's.
func (c *Connection) initiates() bool { return c.endpoint != nil && c.Responder == nil }

// half is how far this end has come with its half of the connection.
//
//	halfOpen ──closing──▶ halfClosing ──everything was pulled──▶ halfClosed
type half uint8

const (
	halfOpen half = iota
	halfClosing
	halfClosed // Transport.CloseSend was called
)

// Values of Connection.claim.
const (
	unclaimed uint32 = iota
	claimedByULP
	claimedByEnd
)

// Time-outs of a connection.
const (
	RequestTimeout = 10 * time.Second // a Responder waits for the Request, and for its ULP's decision
	replyTimeout   = 10 * time.Second // an Initiator waits for the Reply
	// a Responder waits for the message that a peer-to-peer Initiator owes
	rtrTimeout    = 10 * time.Second
	LingerTimeout = 3 * time.Second // after a Terminate or a rejection, in all
	// Connect, when its context has ended, waits for the connection's end
	abortTimeout = time.Second
	// RejectedTimeout is how long a rejected peer has to close first. Linux siw, for one, loses
	// what the Reply says when our FIN comes with it.
	RejectedTimeout = 250 * time.Millisecond
	// CloseTimeout is how long an orderly end waits without progress, unless Param.UserTimeout says
	// otherwise: as long as TCP tries, here and at the peer. What either TCP sends again is not
	// seen here, and R2 is at least 100 s (RFC 9293 section 3.8.3, SHLD-11).
	CloseTimeout = 100 * time.Second
)
