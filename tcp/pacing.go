package tcp

// Pacing spreads a window over its round trip instead of sending it in bursts. The rate is cwnd /
// SRTT, times 2 in slow start, so that pacing does not slow its growth, and times 1.25 after it, so
// that cwnd and not the pacer decides (RFC 9002 section 7.7; Linux, whose 2 and 1.2 these follow,
// takes ssthresh / 2 as the end of slow start). It is off by default: a paced sender needs a turn
// of its Poller per burst.
type pacer struct {
	nextAt  int64 // after this the next segment may go; it may be up to a burst before now
	burstNs int64 // of the last segment sent: how long a burst takes at the rate
}

// sent charges n octets; a burst is so many segments of smss.
func (p *pacer) sent(now int64, n, burst, smss, cwnd, ssthresh int, srtt int64) {
	perWindow := paceWindow(cwnd, ssthresh, srtt)
	window := int64(max(cwnd, 1))
	p.burstNs = perWindow * int64(smss) / window * int64(burst)
	p.nextAt = max(p.nextAt, now-p.burstNs) + perWindow*int64(n)/window
}

// paceWindow is the time that a window takes.
func paceWindow(cwnd, ssthresh int, srtt int64) int64 {
	if cwnd < ssthresh/2 {
		return srtt / 2
	}
	return srtt * 4 / 5
}

// pacingRate is octets a second, 0 before there is a round-trip time.
func pacingRate(cwnd, ssthresh int, srtt int64) uint64 {
	if ns := paceWindow(cwnd, ssthresh, srtt); ns > 0 {
		return uint64(float64(cwnd) * 1e9 / float64(ns))
	}
	return 0
}

// paced says whether pacing lets a segment go; if not, Deadline says when.
func (c *Conn) paced(now int64) bool {
	if !c.mem.cfg.Pacing || c.pace.nextAt < now {
		return true
	}
	// half a burst at once then: fewer turns
	c.timers.laterAt = c.pace.nextAt + max(c.pace.burstNs/2, 1)
	return false
}
