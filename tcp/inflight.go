package tcp

// inFlight is what a Conn keeps while something of it is sent or queued and not released: the ring of records, and the
// loss episode. It lies in Memory beside the ring's run and comes and goes with it, so that an idle Conn does without. A
// Conn without a run has Memory.none in its place, in which nothing is in flight, and which nobody changes.
type inFlight struct {
	sent     sentRing
	recovery recovery
}

// nothing is an inFlight to begin with.
func nothing() inFlight {
	return inFlight{recovery: recovery{burst: burst{at: -1}, rack: rack{reoAt: never}}}
}

// provideRecord sees to more than splitReserve free slots: a first run for a Conn without one, a larger one for a full
// ring. False: there is no memory, or the ring is as large as it may be. It moves c.inFlight.
func (c *Conn) provideRecord() bool {
	s := &c.sent
	if s.free() > splitReserve {
		return true
	}
	m := c.mem
	var recs []record
	var run uint32
	if len(s.recs) == 0 {
		recs, run = m.records.first()
	} else {
		recs, run = m.records.grow(len(s.recs), m.cfg.SentMax)
	}
	if recs == nil {
		return false
	}
	mask := uint32(len(recs) - 1)
	for i := s.rel; i != s.end; i++ {
		recs[i&mask] = *s.rec(i)
	}
	to := &m.flights[run]
	*to = *c.inFlight
	c.giveBackRecords()
	c.inFlight = to
	to.sent.recs, to.sent.run, to.sent.mask = recs, run, mask
	return true
}

// giveBackRecords returns the run; what it holds must be released, or have been copied.
func (c *Conn) giveBackRecords() {
	if len(c.sent.recs) > 0 {
		c.mem.records.give(c.sent.run, len(c.sent.recs))
		c.sent.recs = nil // lest the collector follow it
		c.inFlight = &c.mem.none
	}
}
