package rnic

import "github.com/rnicd/rnicd/rnic/internal/qp"

// A Responder that sends first. RFC 5044 section 7.1.2 rule 4 has it wait for the Initiator's first
// FPDU: an Initiator that does not know yet that it is in full operation could take an FPDU for a
// part of the Reply. Linux siw, for one, gives up a connection on which octets lie behind the Reply
// when it reads that.

// Values of QueuePair.early.
const (
	sendsLast   uint32 = iota // as RFC 5044 has it
	sendsFirst                // SendFirst was called
	peerIsReady               // PeerReady was called
)

// SendFirst lets a Responder send what was posted although no FPDU of the Initiator's has come yet,
// SendFirstPause after its Reply at the soonest, and when our TCP knows that to be acknowledged. It
// is a profile for ULPs that have the Responder send first without RFC 6581's peer-to-peer
// start-up, as ucmatose does: by default both ends of these wait for ever.
//
// It may be called at any time, from any goroutine: before Accept, too, and it holds as soon as the
// QueuePair is in service. Quirks.SendFirst, at Accept, is the same. The error is ErrState when the QueuePair is Closed. It changes nothing at
// an Initiator, or where an RTR message is still awaited (the next FPDU will come by itself).
func (q *QueuePair) SendFirst() error { return q.end.letSend(sendsFirst) }

// PeerReady is SendFirst without the pause: the Initiator is known to be in full operation, for it
// has said so by other means, such as another connection.
func (q *QueuePair) PeerReady() error { return q.end.letSend(peerIsReady) }

func (e *endpoint) letSend(how uint32) error {
	if e.engine.State() == qp.Closed {
		return ErrState
	}
	for had := e.early.Load(); had < how && !e.early.CompareAndSwap(had, how); had = e.early.Load() {
	}
	if l := e.connection.Load(); l != nil { // else joinAccepted sees to it: whichever of the two looks second sees the other
		_ = order(l.transport.Submit, func() { e.sendFirst(l) }) // a stopped Poller has ended the connection already
		e.adapter.turn()
	}
	return nil
}

// sendFirst opens the half that sends, or sets a timer for that, if it was asked for and nothing
// that is owed is still to come. Driver's goroutine.
func (e *endpoint) sendFirst(l *connection) {
	how := e.early.Load()
	if how == sendsLast || !l.maySendFirst() {
		return
	}
	if at := l.repliedAt + int64(SendFirstPause); how == sendsFirst && l.transport.Now() < at {
		l.sendFirstAt = at
		l.transport.SetTimer(at)
		return
	}
	l.open()
}

// maySendFirst: nothing but rule 4 is in the way.
func (l *connection) maySendFirst() bool {
	return l.phase == phaseFull && l.qp.Unopened() && !l.awaitsReady && !l.awaitsRtr
}

// pauseOver is the timer of sendFirst. Octets that are not acknowledged are the Reply, which may
// have to be sent again: the pause begins with that.
func (l *connection) pauseOver() {
	l.sendFirstAt = 0
	switch {
	case !l.maySendFirst():
	case l.transport.Unacked():
		l.repliedAt = l.transport.Now()
		l.end.sendFirst(l)
	default:
		l.open()
	}
	if l.shut { // what was posted goes out now, and then our half is closed
		l.linger()
	}
}
