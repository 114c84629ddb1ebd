package tcp

import "math/bits"

// rtoEstimator is RFC 6298. All in nanoseconds. Before a sample it is zero.
type rtoEstimator struct {
	srtt, rttvar int64
	lowest       minimum
	backoff      uint8 // doublings since the last valid sample
	sampled      bool
	fresh        bool // a sample was taken since the last loss probe: RFC 8985 section 7.3
	synLost      bool // a SYN was, and there was no sample: RFC 6298 section 5.7
}

// rttGranularityNs is G of RFC 6298 section 2: a turn of a busy Poller and a tick of the timestamp
// clock.
const rttGranularityNs = 1_000_000

// sample takes a round-trip time R that Karn's rule allows (RFC 6298 sections 2.2 and 2.3; RTTVAR
// before SRTT). expected is how many samples a round trip gives, were all ACKs like this one: with
// more than one, alpha and beta are divided by it, so that the history stays as long as with one
// (RFC 7323 section 4.2; appendix G supposes two segments per ACK, but a polling receiver
// acknowledges a burst). The divisor is a power of two: this stands on every ACK.
func (e *rtoEstimator) sample(r int64, expected int) {
	r = max(r, 0)
	e.fresh = true
	if !e.sampled {
		e.sampled = true
		e.srtt, e.rttvar = r, r/2
	} else {
		dev := e.srtt - r
		if dev < 0 {
			dev = -dev
		}
		scale := 0
		if expected > 1 {
			scale = min(bits.Len(uint(expected-1)), 10)
		}
		e.rttvar += (dev - e.rttvar) >> (2 + scale)
		e.srtt += (r - e.srtt) >> (3 + scale)
	}
	e.backoff = 0
}

// minRTT is the shortest round trip lately, 0 before there was one.
func (e *rtoEstimator) minRTT() int64 { return e.lowest.value() }

// base is the RTO without backoff.
func (e *rtoEstimator) base(cfg *Config) int64 {
	switch {
	case e.sampled:
		// The floor bounds the variance term, as Linux has it, and not the sum: at 100 ms and more,
		// RTTVAR of a steady path tends to nothing, and jitter would be taken for loss.
		// docs/results/congestion.md says how often.
		return min(e.srtt+max(rttGranularityNs, 4*e.rttvar, cfg.RTOMinNs), cfg.RTOMaxNs)
	case e.synLost:
		return max(cfg.RTOInitialNs, rtoAfterSynLossNs)
	}
	return cfg.RTOInitialNs
}

// scaled is the RTO doubled n times, up to the maximum.
func (e *rtoEstimator) scaled(cfg *Config, n uint8) int64 {
	base := e.base(cfg)
	if n >= 32 || base > cfg.RTOMaxNs>>n {
		return cfg.RTOMaxNs
	}
	return base << n
}

// rto is the RTO with its backoff (section 5.5).
func (c *Conn) rto() int64 { return c.rtt.scaled(&c.mem.cfg, c.rtt.backoff) }

func (e *rtoEstimator) backOff() {
	if e.backoff < 32 {
		e.backoff++
	}
}

// minimum is a windowed minimum (RFC 8985 section 6.2, step 1): the smallest of this period and of
// the one before. So it remembers for one period at least and two at most, and a path that has
// become longer is believed after that. Two values instead of the three of Kathleen Nichols' filter
// (Linux's lib/win_minmax.c): here only "recent" matters.
//
// from wraps after 49 days. So the minimum of a path that was silent for just so long may be
// believed for a period more.
type minimum struct {
	this, last int64
	from       milliseconds // begin of this period
	some       uint8        // values in use: this, and last
}

// minRTTPeriodMs is half of what Linux remembers (tcp_min_rtt_wlen).
const minRTTPeriodMs = 150_000

func (m *minimum) add(now, v int64) {
	at := millisecondsOf(now)
	switch age := at - m.from; {
	case m.some == 0, age >= 2*minRTTPeriodMs:
		*m = minimum{this: v, from: at, some: 1}
	case age >= minRTTPeriodMs:
		*m = minimum{this: v, last: m.this, from: at, some: 2}
	case v < m.this:
		m.this = v
	}
}

func (m *minimum) value() int64 {
	if m.some == 2 {
		return min(m.this, m.last)
	}
	return m.this
}
