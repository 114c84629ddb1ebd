package tcp

// rtoEstimator is RFC 6298. All in nanoseconds.
type rtoEstimator struct {
	srtt, rttvar int64
	base         int64 // RTO without backoff
	minRTT       int64 // smallest sample seen: no answer can be quicker
	backoff      uint8 // doublings since the last valid sample
	sampled      bool
	min, max     int64
}

// rttGranularityNs is G of RFC 6298 section 2: a turn of a busy Poller and a tick of the timestamp clock.
const rttGranularityNs = 1_000_000

func (e *rtoEstimator) reset(cfg *Config) {
	*e = rtoEstimator{base: cfg.RTOInitialNs, min: cfg.RTOMinNs, max: cfg.RTOMaxNs}
}

// sample takes a round-trip time R that Karn's rule allows (RFC 6298 sections 2.2 and 2.3; RTTVAR before SRTT).
func (e *rtoEstimator) sample(r int64) {
	r = max(r, 0)
	if !e.sampled {
		e.sampled = true
		e.srtt, e.rttvar = r, r/2
		e.minRTT = r
	} else {
		dev := e.srtt - r
		if dev < 0 {
			dev = -dev
		}
		e.rttvar += (dev - e.rttvar) / 4
		e.srtt += (r - e.srtt) / 8
		e.minRTT = min(e.minRTT, r)
	}
	e.base = min(max(e.srtt+max(rttGranularityNs, 4*e.rttvar), e.min), e.max)
	e.backoff = 0
}

// current is the RTO with its backoff (section 5.5).
func (e *rtoEstimator) current() int64 { return e.scaled(e.backoff) }

// scaled is the RTO doubled n times, up to the maximum.
func (e *rtoEstimator) scaled(n uint8) int64 {
	if n >= 32 || e.base > e.max>>n {
		return e.max
	}
	return e.base << n
}

func (e *rtoEstimator) backOff() {
	if e.backoff < 32 {
		e.backoff++
	}
}
