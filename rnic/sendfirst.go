package rnic

import "github.com/rnicd/rnicd/rnic/internal/connect"

// SendFirst lets a Responder send what was posted although no FPDU of the Initiator's has come yet,
// SendFirstPause after its Reply at the soonest, and when our TCP knows that to be acknowledged. It
// is a profile for ULPs that have the Responder send first without RFC 6581's peer-to-peer
// start-up, as ucmatose does: by default both ends of these wait for ever.
//
// Any application goroutine, at any time: before Accept, too, and it holds as soon as the QueuePair
// is in service. Quirks.SendFirst, at Accept, is the same. The error is ErrState when the
// QueuePair is Closed. It changes nothing at an Initiator, or where an RTR message is still awaited
// (the next FPDU will come by itself).
func (q *QueuePair) SendFirst() error { return q.end.LetSend(connect.SendsFirst) }

// PeerReady is SendFirst without the pause: the Initiator is known to be in full operation, for it
// has said so by other means, such as another connection. Any application goroutine.
func (q *QueuePair) PeerReady() error { return q.end.LetSend(connect.PeerIsReady) }
