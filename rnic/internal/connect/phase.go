package connect

import "time"

// Values of Connection.claim.
const (
	unclaimed uint32 = iota
	claimedByULP
	claimedByEnd
)

// Time-outs of a connection.
const (
	requestTimeout = 10 * time.Second // Responder waits for the Request, and for its ULP's decision
	replyTimeout   = 10 * time.Second // Initiator waits for the Reply
	lingerTimeout  = 3 * time.Second  // after a Terminate or a rejection, in all
	// CloseTimeout is how long an orderly end waits without progress, unless ConnParam.UserTimeout
	// says otherwise: as long as TCP tries, here and at the peer. What either still sends again
	// nobody else can see, and R2 is at least 100 s (RFC 9293 section 3.8.3, SHLD-11).
	closeTimeout = 100 * time.Second
)

// phase of a connection.
//
//	Responder:  connecting -> request -> decide -> full -> over
//	                             |          +----> rejecting -> over
//	Initiator:  connecting -> reply ------------> full -> over
//	                             +-------------> rejecting -> over
//
// culley-02 goes from connecting to full, and at the Responder through decide. A Responder that
// awaits a Ready-to-Receive frame is in full operation except for what it receives.
type phase uint8

const (
	phaseConnecting phase = iota
	phaseRequest
	phaseDecide
	phaseReply
	phaseFull
	phaseRejecting
	phaseLeaving // MPA is left, and the connection goes back to streaming mode (mpatostream.go)
	phaseOver
)
