package tcp

import "math"

// Forever, for SetUserTimeout, is a connection that never gives up.
const Forever = math.MaxInt64

const foreverMs = math.MaxUint32 // as a Conn keeps it

// SetUserTimeout sets R2 of RFC 9293 section 3.8.3 for this connection: how long a SYN, data or
// probes may stay unacknowledged before the end. 0 is the Config's (UserTimeoutNs, and SynRetries
// for a SYN), Forever is never. It is kept in milliseconds, rounded up; 49 days or more are
// Forever.
func (c *Conn) SetUserTimeout(ns int64) {
	ms := max(ns, 0) / 1_000_000
	if ms*1_000_000 < ns {
		ms++
	}
	c.timers.userTimeoutMs = uint32(min(ms, foreverMs))
}

// giveUpAt is R2 as a time.
func (c *Conn) giveUpAt() int64 {
	limit := c.timers.userTimeoutMs
	switch {
	case c.state.synchronized():
		if c.sent.una == c.sent.end {
			return never
		}
		if limit == 0 {
			return c.giveUpDataAt()
		}
	case c.state == Closed || limit == 0:
		return never
	}
	if limit == foreverMs {
		return never
	}
	return after(c.timers.progressAt, c.userTimeout())
}

// after is d nanoseconds, which are not negative, after at; never where there is no such time.
func after(at, d int64) int64 {
	if at > never-d {
		return never
	}
	return at + d
}

// giveUpDataAt is R2 as configured: a time, and a count of retransmissions, the last of which may
// be answered. The count is for long RTOs: in 100 s one of 3 s is five of them, and a path
// that has become narrower takes the first three (plpmtud.go). RFC 9293 section 3.8.3 lets R2 be
// either, and "correspond to at least 100 seconds".
func (c *Conn) giveUpDataAt() int64 {
	t := &c.timers
	at := after(t.progressAt, c.mem.cfg.UserTimeoutNs)
	switch n := c.mem.cfg.DataRetries; {
	case c.sndWnd == 0 || int(t.expiries) > n: // probes: time alone
		return at
	case int(t.expiries) < n:
		return never
	}
	return max(at, c.rtoAt)
}

// suspect is R1 of RFC 9293 section 3.8.3: after so many retransmissions in a row the caller is
// told, once until there is progress, so that the next hop can be looked at and the application
// learn of it. What had not left says nothing of the next hop.
func (c *Conn) suspect() {
	t := &c.timers
	if t.expiries < math.MaxUint8 {
		t.expiries++
	}
	if int(t.expiries-t.heldBack) == c.mem.cfg.SuspectRetries {
		c.events |= EvSuspect
	}
}

// SetOrphaned says that received octets are no longer read: a half-duplex close (RFC 9293 section
// 3.6.1, MAY-1). CloseSend is the other half. From now on octets that arrive reset the
// connection, since no reader would ever know that they were lost (SHLD-3); and FIN-WAIT-2 ends
// after Config.FinWait2Ns, or as SetFinWait2 says, since a peer that never closes would hold it
// for ever. Only the caller knows of octets that were delivered and not read: where there are
// some, it aborts instead.
func (c *Conn) SetOrphaned(now int64) {
	if c.state == Closed || c.orphaned {
		return
	}
	c.orphaned = true
	if c.state == FinWait2 {
		c.awaitFIN(now)
	}
}

// finWait2None is an orphan that does not wait for the peer's FIN.
const finWait2None = math.MaxUint16

// SetFinWait2 says how long this connection, once it is an orphan, waits for the peer's FIN after
// our own was acknowledged (Linux: TCP_LINGER2). 0 is Config.FinWait2Ns; below 0 it does not wait,
// and is gone when our FIN is acknowledged: what the peer still sends meets no connection. It is
// kept in seconds, rounded up, 18 hours at most. It holds from the next FIN-WAIT-2, or SetOrphaned,
// on.
func (c *Conn) SetFinWait2(ns int64) {
	const second = 1_000_000_000
	switch {
	case ns < 0:
		c.finWait2 = finWait2None
	case ns > (finWait2None-1)*second:
		c.finWait2 = finWait2None - 1
	default:
		c.finWait2 = uint16((ns + second - 1) / second)
	}
}

// awaitFIN sets the end of an orphan's FIN-WAIT-2.
func (c *Conn) awaitFIN(now int64) {
	wait := int64(c.finWait2) * 1_000_000_000
	switch c.finWait2 {
	case 0:
		wait = c.mem.cfg.FinWait2Ns
	case finWait2None:
		wait = 0
	}
	c.timers.laterAt = now + wait
}

// enterFinWait2 follows the ACK of our FIN.
func (c *Conn) enterFinWait2(now int64) {
	c.enter(FinWait2)
	c.events |= EvFinAcked
	c.timers.laterAt = never
	if c.orphaned {
		c.awaitFIN(now)
	}
}

// unread resets an orphaned connection to which new octets have come.
func (c *Conn) unread(now int64) Arrival {
	c.Abort(now)
	c.events |= EvReset
	return Arrival{Drop: DropOrphaned}
}
