package rnic

// SpeakFirst lets a Responder send what was posted although no FPDU of the Initiator's has come yet. RFC 5044 section 7.1.2
// rule 4 forbids that, and so do we unless this is called: an Initiator that does not know yet that it is in full operation could
// take an FPDU for a part of the Reply. It is a profile for ULPs that have the Responder speak first without RFC 6581's
// peer-to-peer start-up: perftest's ib_write_lat does, and Linux siw lets it. Call it only when the peer has said by other means,
// such as another connection, that it has our Reply.
//
// From the RTS state on, ErrState before; any goroutine. It changes nothing at an Initiator, where an RTR message is still awaited
// (the next FPDU will come by itself), or when the connection is over.
func (q *QueuePair) SpeakFirst() error {
	l := q.link.Load()
	if l == nil || q.State() < RTS {
		return ErrState
	}
	_ = order(l.car.submit, func() { // a stopped Poller has ended the connection already
		if l.phase == phaseFull && !q.send.enabled && !q.send.stopped && !l.awaitsReady && !l.awaitsRtr {
			q.open(l)
		}
	})
	q.adapter.turn()
	return nil
}
