package tcp

import (
	"math"

	"github.com/rnicd/rnicd/internal/flight"
)

// keepAlive probes a peer from which nothing is expected (RFC 9293 section 3.8.4): while nothing of
// ours is outstanding and nothing has come for the idle time, an empty segment in front of the
// window draws an ACK. The connection ends only when as many of them in a row as were asked for are
// not answered. Off unless SetKeepAlive turns it on.
type keepAlive struct {
	heardAt    int64 // when the peer's last segment came, or later if a probe was late; kept while on
	intervalMs uint32
	count      uint8
	probes     uint8 // sent since heardAt
	outlasted  bool  // the end was put off since then (pause.go)
}

// KeepAliveDefault, for any argument of SetKeepAlive, is what RFC 9293 asks for (at least two
// hours) and Linux does.
const (
	KeepAliveDefault    = -1
	keepAliveIdleNs     = 7200_000_000_000
	keepAliveIntervalNs = 75_000_000_000
	keepAliveCount      = 9
)

// SetKeepAlive turns keep-alives on, after idleNs without a segment, every intervalNs, given up
// after count without an answer (EvTimeout); or off, with idleNs 0. Each may be KeepAliveDefault:
// 2 hours, 75 s, 9; so is an intervalNs or count of 0. Times are kept in milliseconds. Where they
// are on, the time since the peer's last segment and the probes since then count on.
func (c *Conn) SetKeepAlive(now, idleNs, intervalNs int64, count int) {
	if idleNs == 0 {
		c.keep, c.keepIdle = keepAlive{}, 0
		return
	}
	if idleNs < 0 {
		idleNs = keepAliveIdleNs
	}
	if intervalNs <= 0 {
		intervalNs = keepAliveIntervalNs
	}
	if count <= 0 {
		count = keepAliveCount
	}
	if c.keepIdle == 0 {
		c.keep.heardAt = now
	}
	c.keepIdle = wholeMs(idleNs)
	c.keep.intervalMs, c.keep.count = wholeMs(intervalNs), uint8(min(count, 255))
}

// wholeMs is ns, which is above 0, in milliseconds: 1 at least, and 49 days at most.
func wholeMs(ns int64) uint32 { return uint32(min(max(ns/1_000_000, 1), math.MaxUint32)) }

// heard takes note of a segment of the peer's.
func (c *Conn) heard(now int64) {
	if c.keepIdle != 0 {
		c.keep.heardAt, c.keep.probes, c.keep.outlasted = now, 0, false
	}
}

// keepAliveAt is when the next probe is due, or the end after the last.
func (c *Conn) keepAliveAt() int64 {
	if c.keepIdle == 0 || !c.state.synchronized() || c.state == TimeWait || c.outstanding() {
		return never
	}
	return c.keep.heardAt + c.keepSilence()
}

// keepSilence is how long the peer has not been heard when the next probe is due.
func (c *Conn) keepSilence() int64 {
	return (int64(c.keepIdle) + int64(c.keep.probes)*int64(c.keep.intervalMs)) * 1_000_000
}

// keepAliveDue handles the keep-alive timer. The time for an answer counts from the probe, also
// when that comes late: SetKeepAlive may have made the idle time shorter than it has been already.
func (c *Conn) keepAliveDue(now int64) {
	if c.keep.probes >= c.keep.count {
		c.Record(flight.GaveUp, 0, uint64(now-c.keep.heardAt))
		c.finish(EvTimeout)
		return
	}
	c.keep.heardAt = now - c.keepSilence()
	c.keep.probes++
	c.due |= dueKeepAlive
}

// nextKeepAlive is a probe: SEG.SEQ is SND.NXT-1 and there is no octet in it (SHLD-12), so the peer
// must answer.
func (c *Conn) nextKeepAlive(now int64, t *Transmit) {
	c.header(now, t)
	t.Seq--
	c.stats.keepAlives.one()
	c.Record(flight.KeepAlive, 0, 0)
	c.ackSent()
}
