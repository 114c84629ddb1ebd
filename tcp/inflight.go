package tcp

// inFlight is what a Conn keeps while something of it is sent or queued and not released: the ring
// of records, and the loss episode. It lies in Memory next to the ring's run and comes and goes
// with it, so that an idle Conn does without. A Conn without a run has Memory.none in its place, in
// which nothing is in flight, and which does not change.
type inFlight struct {
	sent     sentRing
	recovery recovery
	// when the retransmission timer would fire; timers.rtxAt is no later, unless it probes a window
	rtoAt int64
	owed  PeerClock
}

// nothing is what Memory.none is.
func nothing() inFlight {
	return inFlight{recovery: recovery{burst: burst{at: -1}, rack: rack{reoAt: never}}}
}

// provideRecord makes sure that more than splitReserve slots are free: a first run for a Conn
// without one, a larger one for a full ring. False: there is no memory, or the ring is as large as
// it may be. It moves c.inFlight.
func (c *Conn) provideRecord() bool { return c.sent.free() > splitReserve || c.takeRecords() }

func (c *Conn) takeRecords() bool {
	m, s := c.mem, &c.sent
	if len(s.recs) == 0 {
		recs, run := m.records.first()
		if recs == nil {
			return false
		}
		f := &m.flights[run]
		f.sent.begin(recs, run)
		f.recovery = recovery{}
		f.recovery.rack.reoAt, f.rtoAt, f.owed = never, 0, PeerClock{}
		c.inFlight = f
		return true
	}
	recs, run := m.records.grow(len(s.recs), m.cfg.SentMax)
	if recs == nil {
		return false
	}
	mask := uint32(len(recs) - 1)
	for i := s.rel; i != s.end; i++ {
		recs[i&mask] = *s.rec(i)
	}
	to := &m.flights[run]
	*to = *c.inFlight
	to.sent.recs, to.sent.run, to.sent.mask = recs, run, mask
	c.giveBackRecords()
	c.inFlight = to
	return true
}

// giveBackRecords returns the run; what it holds must be released, or have been copied.
func (c *Conn) giveBackRecords() {
	if len(c.sent.recs) > 0 {
		c.mem.records.give(c.sent.run, len(c.sent.recs))
		c.inFlight = &c.mem.none
	}
}
