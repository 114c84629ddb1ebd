package stack

// Connections that could send and found no Buf to spare, or, with nothing in flight, no tcp.Memory,
// wait here, longest first, for what others give back: nothing else would make the Poller ask them
// again. A list of their own, because those that wait may be very many, and a Turn must not walk
// over all of them to find nothing. Connections that have something in flight and cannot have more
// need no list, their ACKs bring them back.

// retriesMax bounds how many are asked again in one Turn.
const retriesMax = 64

// await puts c on the list that it belongs to now, once. Connections of unproven peers leave
// more Bufs to others, so they wait on a list of their own: on one list they would hold up the
// rest. A connection stands in one list at a time: c stands in no other.
func (s *pressure) await(c *Conn) {
	unproven := s.floor(c) > 0
	if c.marks&markWaiting != 0 {
		if unproven == (c.marks&markUnproven != 0) {
			return
		}
		s.stopWaiting(c)
	}
	c.marks |= markWaiting
	if unproven {
		c.marks |= markUnproven
		s.unproven.pushBack(s.conns, c.index)
		return
	}
	s.waiting.pushBack(s.conns, c.index)
}

func (s *pressure) stopWaiting(c *Conn) {
	switch {
	case c.marks&markWaiting == 0:
		return
	case c.marks&markUnproven != 0:
		s.unproven.remove(s.conns, c.index)
	default:
		s.waiting.remove(s.conns, c.index)
	}
	c.marks &^= markWaiting | markUnproven
}

// retry has as many connections served as there is memory for.
func (s *pressure) retry(turns uint64, active *active) {
	waiting, unproven := s.retriable(turns)
	s.retryFrom(&s.waiting, waiting, active)
	s.retryFrom(&s.unproven, unproven, active)
	switch {
	case !s.waits():
	case s.memory.RunsFree() == 0 && s.spare() > 0:
		s.needRecords()
	default:
		s.need(noConn)
	}
}

// waits says that connections wait.
func (s *pressure) waits() bool { return s.waiting.n+s.unproven.n > 0 }

// retriable is how many connections of either list could be served now. Guests are taken from both,
// and where they are odd, the last one from either in turn.
func (s *pressure) retriable(turns uint64) (waiting, unproven int) {
	bufs, runs := s.spare()+1, s.memory.RunsFree()
	guests := max(min(s.loans.guestsMax-s.loans.guests, s.lendable()), 0)
	ofUnproven := (guests + int(turns&1)) / 2
	waiting = max(min(retriesMax, s.waiting.n, runs, max(bufs, guests-ofUnproven)), 0)
	forUnproven := max(bufs-waiting-s.budget.Proven, ofUnproven)
	unproven = max(min(retriesMax, s.unproven.n, runs-waiting, forUnproven), 0)
	return waiting, unproven
}

func (s *pressure) retryFrom(l *list, n int, active *active) {
	for ; n > 0 && l.first != noConn; n-- {
		c := &s.conns[l.first]
		s.stopWaiting(c)
		active.add(c)
	}
}
