package stack

import (
	"errors"
)

// ErrStalled is advice: the peer has not acknowledged several retransmissions in a row (R1 of RFC 9293 section 3.8.3).
var ErrStalled = errors.New("stack: the peer does not acknowledge")

// Adviser is an optional part of an Upper: Advice tells of trouble that has not ended the
// connection and may pass (RFC 9293 section 3.9.1.8): ErrStalled, or ErrNoRoute or
// ErrNetUnreachable when a router said so. An Upper without it has disabled such reports;
// Conn.SoftError has the last one all the same.
type Adviser interface {
	Advice(c *Conn, err error)
}

// SoftError is the last such trouble since the peer acknowledged anything, nil when there was none (RFC 9293 section
// 3.9.2.2). A connection that times out ends with it instead of ErrTimeout when a router had said it.
func (c *Conn) SoftError() error { return c.advice }

// SetKeepAlive turns keep-alives on or off: nanoseconds without a segment before the first probe (0: off), between
// probes, and how many unanswered ones end the connection with ErrTimeout. tcp.KeepAliveDefault for any: 2 hours, 75 s,
// 9. Off by default.
func (c *Conn) SetKeepAlive(idleNs, intervalNs int64, count int) {
	c.tcp.SetKeepAlive(c.p.now, idleNs, intervalNs, count)
	c.p.touch(c)
}

// SetUserTimeout sets for how many nanoseconds a SYN, octets or probes may stay unacknowledged before the connection ends
// with ErrTimeout. 0: as configured; tcp.Forever: no limit.
func (c *Conn) SetUserTimeout(ns int64) {
	c.tcp.SetUserTimeout(ns)
	c.p.touch(c)
}

// SetOrphaned says that the Upper will not read any more, beside CloseSend: octets that still come
// reset the connection (ErrUnread, an ErrReset), and a peer that never closes its half is not
// waited for longer than tcp.Config.FinWait2Ns (ErrTimeout). An Upper that has octets it was given
// and did not read calls Abort instead (RFC 9293 section 3.6.1).
func (c *Conn) SetOrphaned() {
	c.tcp.SetOrphaned(c.p.now)
	c.p.touch(c)
}

// advise keeps a soft error and tells the Upper.
func (p *Poller) advise(c *Conn, err error) {
	c.advised, c.advice = true, err
	if a, ok := c.upper.(Adviser); ok && c.marks&markAbort == 0 {
		a.Advice(c, err)
	}
}

// stalled is tcp's EvSuspect, negative advice about the next hop (RFC 9293 section 3.8.3): it is asked whether it is still
// there, and one that does not answer is replaced where there is another.
func (p *Poller) stalled(c *Conn) {
	p.n.Stalled++
	p.advise(c, ErrStalled)
	p.neighbours.Suspect(p.now, c.nextHop)
}
