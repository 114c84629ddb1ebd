package rnic

// SpeakFirst lets a Responder send what was posted although no FPDU of the Initiator's has come
// yet. RFC 5044 section 7.1.2 rule 4 forbids that, and so do we unless this is called: an Initiator
// that does not know yet that it is in full operation could take an FPDU for a part of the Reply.
// It is a profile for ULPs that have the Responder speak first without RFC 6581's peer-to-peer
// start-up, as ucmatose and perftest's ib_write_lat do; an Initiator that keeps TCP's order, as
// Linux siw does, is not misled by it.
//
// It may be called at any time, from any goroutine: before Accept, and it holds as soon as the
// QueuePair is in service. The error is ErrState when the QueuePair is Closed. It changes nothing
// at an Initiator, or where an RTR message is still awaited (the next FPDU will come by itself).
func (q *QueuePair) SpeakFirst() error {
	if q.State() == Closed {
		return ErrState
	}
	q.early.Store(true)
	if l := q.link.Load(); l != nil { // else joinAccepted sees to it: whichever of the two looks second sees the other
		_ = order(l.car.submit, func() { q.speakFirst(l) }) // a stopped Poller has ended the connection already
		q.adapter.turn()
	}
	return nil
}

// speakFirst opens the half that sends, if that was asked for and nothing that is owed is still to
// come. Driver's goroutine.
func (q *QueuePair) speakFirst(l *link) {
	if q.early.Load() && l.phase == phaseFull && !q.send.enabled && !q.send.stopped && !l.awaitsReady && !l.awaitsRtr {
		q.open(l)
	}
}
