package connect

import "time"

// phase of a connection.
//
//	Responder:  connecting -> request -> decide -> full ------> over
//	                             |          +----> to stream -> over
//	                             +----------+----> rejecting -> over
//	Initiator:  connecting -> reply -------------> full ------> over
//	                             +---------------> to stream -> over
//	                             +---------------> rejecting -> over
//
// Each may go to over at once. culley-02 goes from connecting to full, and at the Responder through
// decide, after request if Request frames may come too. A Responder that awaits a Ready-to-Receive
// frame is in full operation except for what it receives. It rejects a Request of a dialect that it
// does not serve without asking its ULP. An Initiator is rejecting after a Reply of another
// Revision; after one with R set the connection becomes a stream if the ULP keeps it, or is reset.
type phase uint8

const (
	phaseConnecting phase = iota
	phaseRequest
	phaseDecide
	phaseReply
	phaseFull
	phaseRejecting
	phaseToStream // the connection goes back to streaming mode (mpatostream.go)
	phaseOver
)

// Values of Connection.claim.
const (
	unclaimed uint32 = iota
	claimedByULP
	claimedByEnd
)

// Time-outs of a connection.
const (
	requestTimeout = 10 * time.Second // a Responder waits for the Request, and for its ULP's decision
	replyTimeout   = 10 * time.Second // an Initiator waits for the Reply
	// a Responder waits for the message that a peer-to-peer Initiator owes
	rtrTimeout    = 10 * time.Second
	lingerTimeout = 3 * time.Second // after a Terminate or a rejection, in all
	// Connect, when its context has ended, waits for the connection's end
	abortTimeout = time.Second
	// rejectedTimeout is how long a rejected peer has to close first. Linux siw, for one, loses
	// what the Reply says when our FIN comes with it.
	rejectedTimeout = 250 * time.Millisecond
	// closeTimeout is how long an orderly end waits without progress, unless Param.UserTimeout says
	// otherwise: as long as TCP tries, here and at the peer. What either TCP sends again is not
	// seen here, and R2 is at least 100 s (RFC 9293 section 3.8.3, SHLD-11).
	closeTimeout = 100 * time.Second
)
