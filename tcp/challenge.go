package tcp

// challengeLimiter throttles ACKs that answer what should not have come: challenge ACKs (RFC 5961
// section 7) and answers to empty segments out of the window, which two confused ends could
// otherwise exchange for ever. It is kept per connection: a limit shared by all would tell an
// attacker about the others.
type challengeLimiter struct {
	from milliseconds // begin of the period
	n    uint32       // sent in it
}

func (l *challengeLimiter) allow(now int64, cfg *Config) bool {
	if at := millisecondsOf(now); l.n == 0 || int64(at-l.from)*1_000_000 >= cfg.ChallengeAckPeriodNs {
		l.from, l.n = at, 0
	}
	if int(l.n) >= cfg.ChallengeAckMax {
		return false
	}
	l.n++
	return true
}

// challenge owes an ACK if the limit allows.
func (c *Conn) challenge(now int64) {
	if c.limiter.allow(now, &c.mem.cfg) {
		c.stats.challengeAcks.one()
		c.ack.urgent = true
	}
}
