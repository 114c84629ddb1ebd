package connect

import (
	"time"

	"github.com/rnicd/rnicd/internal/wq"
)

// A Responder that sends first. RFC 5044 section 7.1.2 rule 4 has it wait for the Initiator's first
// FPDU: an Initiator that does not know yet that it is in full operation could take an FPDU for a
// part of the Reply. Linux siw, for one, gives a connection up if octets have come after the Reply
// by the time it reads that.

// SendFirstPause is how long a Responder that knows nothing more of the Initiator waits after its
// Reply before it sends first.
const SendFirstPause = 300 * time.Millisecond

// Values of Endpoint.sendsFirst.
const (
	sendsLast   uint32 = iota // as RFC 5044 has it
	SendsFirst                // SendFirst was called
	PeerIsReady               // PeerReady was called
)

// LetSend has a Responder send first: how is SendsFirst or PeerIsReady. ErrState when the queue
// pair is Closed. Any goroutine.
func (e *Endpoint) LetSend(how uint32) error {
	if e.engine.State() == wq.Closed {
		return ErrState
	}
	for had := e.sendsFirst.Load(); had < how &&
		!e.sendsFirst.CompareAndSwap(had, how); had = e.sendsFirst.Load() {
	}
	// else joinAccepted opens it: whichever of the two looks second sees the other
	if c := e.Connection.Load(); c != nil {
		// a stopped Poller has ended the connection already
		_ = Order(c.Transport.Submit, func() { e.sendFirst(c) })
		e.host.Turn()
	}
	return nil
}

// sendFirst opens the half that sends, or sets a timer for that, if LetSend was called and the peer
// owes nothing of start-up.
func (e *Endpoint) sendFirst(c *Connection) {
	how := e.sendsFirst.Load()
	if how == sendsLast || !c.maySendFirst() {
		return
	}
	if at := c.repliedAt + int64(SendFirstPause); how == SendsFirst && c.Transport.Now() < at {
		c.sendFirstAt = at
		c.setTimerAt(timerSendFirst, at)
		return
	}
	c.open()
}

// maySendFirst says whether only rule 4 is in the way.
func (c *Connection) maySendFirst() bool {
	return c.phase.inService() && !c.phase.awaitsRtr() && c.engine.Unopened()
}

// pauseOver is what sendFirst's timer does. Octets that are not acknowledged are the Reply, which
// may have to be sent again: the pause then begins again.
func (c *Connection) pauseOver() {
	c.sendFirstAt = 0
	switch {
	case !c.maySendFirst():
	case c.Transport.Unacked():
		c.repliedAt = c.Transport.Now()
		c.endpoint.sendFirst(c)
	default:
		c.open()
	}
	if c.half != halfOpen { // what was posted goes out now, and then our half is closed
		c.linger()
	}
}
