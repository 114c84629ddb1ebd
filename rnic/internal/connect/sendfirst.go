package connect

import (
	"time"

	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// A Responder that sends first. RFC 5044 section 7.1.2 rule 4 has it wait for the Initiator's first
// FPDU: an Initiator that does not know yet that it is in full operation could take an FPDU for a
// part of the Reply. Linux siw, for one, gives up a connection on which octets lie after the Reply
// when it reads that.

// SendFirstPause is how long after its Reply a Responder sends first that knows nothing more of the
// Initiator.
const SendFirstPause = 300 * time.Millisecond

// Values of QueuePair.early.
const (
	sendsLast   uint32 = iota // as RFC 5044 has it
	SendsFirst                // SendFirst was called
	PeerIsReady               // PeerReady was called
)

// LetSend is SendFirst or PeerReady. Any goroutine.
func (e *Endpoint) LetSend(how uint32) error {
	if e.engine.State() == qp.Closed {
		return ErrState
	}
	for had := e.sendsFirst.Load(); had < how && !e.sendsFirst.CompareAndSwap(had, how); had = e.sendsFirst.Load() {
	}
	if l := e.Connection.Load(); l != nil { // else joinAccepted sees to it: whichever of the two looks second sees the other
		_ = order(l.Transport.Submit, func() { e.sendFirst(l) }) // a stopped Poller has ended the connection already
		e.host.Turn()
	}
	return nil
}

// sendFirst opens the half that sends, or sets a timer for that, if it was asked for and nothing
// that is owed is still to come. Driver's goroutine.
func (e *Endpoint) sendFirst(l *Connection) {
	how := e.sendsFirst.Load()
	if how == sendsLast || !l.maySendFirst() {
		return
	}
	if at := l.repliedAt + int64(SendFirstPause); how == SendsFirst && l.Transport.Now() < at {
		l.sendFirstAt = at
		l.Transport.SetTimer(at)
		return
	}
	l.open()
}

// maySendFirst: nothing but rule 4 is in the way.
func (l *Connection) maySendFirst() bool {
	return l.phase == phaseFull && l.engine.Unopened() && !l.awaitsReady && !l.awaitsRtr
}

// pauseOver is the timer of sendFirst. Octets that are not acknowledged are the Reply, which may
// have to be sent again: the pause begins with that.
func (l *Connection) pauseOver() {
	l.sendFirstAt = 0
	switch {
	case !l.maySendFirst():
	case l.Transport.Unacked():
		l.repliedAt = l.Transport.Now()
		l.endpoint.sendFirst(l)
	default:
		l.open()
	}
	if l.shut { // what was posted goes out now, and then our half is closed
		l.linger()
	}
}
