package tcp

const (
	pauseMinNs   = 20_000_000    // ns: for less no end is put off
	pauseGraceNs = 1_000_000_000 // ns: in which a peer that was paused, too, answers
)

// outlast puts off the end of a connection whose peer has not answered, R2 or the last
// keep-alive's, that came due in the away nanoseconds up to now, in which the caller looked at
// nothing: by as long, a second at most, and once until the peer is heard. The retransmission
// that came due meanwhile goes out before the end.
func (c *Conn) outlast(now, away int64) {
	t, k := &c.timers, &c.keep
	if away < pauseMinNs {
		return
	}
	until, missed := now+min(away, pauseGraceNs), func(at int64) bool {
		return now-away <= at && at <= now
	}
	if !t.outlasted && missed(c.giveUpAt()) {
		t.outlasted = true
		t.progressAt = until - c.userTimeout()
	}
	if !k.outlasted && k.probes >= k.count && missed(c.keepAliveAt()) {
		k.outlasted = true
		k.heardAt = until - c.keepSilence()
	}
}

// userTimeout is R2 as a time, of this connection or the Config's.
func (c *Conn) userTimeout() int64 {
	if ms := c.timers.userTimeoutMs; ms != 0 {
		return int64(ms) * 1_000_000
	}
	return c.mem.cfg.UserTimeoutNs
}
