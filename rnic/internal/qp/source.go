package qp

// Source is work that waits in other queues than the engine's own, as in rings that another
// language or process fills. The engine asks it when its own ring is empty, on the goroutine that
// drives the connection; after Closed, under the lock of Flush. It must not block.
type Source interface {
	// SendsWait says whether FillSends has something to post. It is asked often.
	SendsWait() bool
	// FillSends and FillRecvs post what waits, by PostSend and PostRecv, as far as there is room.
	FillSends()
	FillRecvs()
	// Written is told once after each Arrive or LeftEdge that has delivered Writes.
	Written()
}

// sendsWait says whether a work request can be taken.
func (q *Engine) sendsWait() bool {
	return q.SQ.Len() > 0 || q.Source != nil && q.Source.SendsWait()
}

// fillSends has the Source post; false: it had nothing.
func (q *Engine) fillSends() bool {
	if q.Source == nil || !q.Source.SendsWait() {
		return false
	}
	q.SQ.Release() // of what was taken in this call of Pull
	q.Source.FillSends()
	return q.SQ.Len() > 0
}

// fillRecvs is fillSends for receive buffers.
func (q *Engine) fillRecvs() bool {
	if q.Source == nil {
		return false
	}
	q.Source.FillRecvs()
	return q.RQ.Len() > 0
}
