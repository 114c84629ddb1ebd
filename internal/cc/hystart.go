package cc

import "math"

// hystart is HyStart++, RFC 9406: the first slow start ends when the round-trip time rises,
// before a queue overflows. A round lasts until what was SND.NXT at its begin is acknowledged
// (State.roundEnd). Round-trip times in nanoseconds, 4.3 s at most; 0: none yet.
//
//	slow start ──RTT rose──► conservative slow start ──5 rounds──► congestion avoidance
//	     ▲────────RTT fell below the baseline───┘
type hystart struct {
	last, current uint32 // the least round-trip time of the previous round, and of this one
	baseline      uint32 // current when conservative slow start began
	samples       uint8  // taken in this round, up to hystartSamples
	rounds        uint8  // of conservative slow start, the one under way included; 0: slow start
}

// Section 4.3.
const (
	hystartSamples   = 8 // N_RTT_SAMPLE
	rttThreshMinNs   = 4_000_000
	rttThreshMaxNs   = 16_000_000
	rttDivisor       = 8
	cssGrowthDivisor = 4
	cssRounds        = 5
)

// cautious says that this is conservative slow start.
func (h *hystart) cautious() bool { return h.rounds > 0 }

// observe takes an acknowledgment of the first slow start and says whether slow start is over.
// Only acknowledgments of what cwnd limited belong here: others say nothing of a queue that we
// build.
func (w *State) observe(a *Sample) (over bool) {
	h := &w.hystart
	if a.RTT >= 0 {
		if rtt := uint32(min(max(a.RTT, 1), math.MaxUint32)); h.current == 0 || rtt < h.current {
			h.current = rtt
		}
		h.samples = min(h.samples+1, hystartSamples)
	}
	if h.samples == hystartSamples {
		h.judge()
	}
	if a.Una < w.roundEnd {
		return false
	}
	if h.rounds == cssRounds {
		return true
	}
	if h.rounds > 0 {
		h.rounds++
	}
	w.roundEnd = a.Nxt
	h.last, h.current, h.samples = h.current, 0, 0
	return false
}

// judge compares the round with the one before it (section 4.2).
func (h *hystart) judge() {
	if h.cautious() {
		if h.current < h.baseline { // it was no queue: slow start goes on
			h.rounds = 0
		}
		return
	}
	if h.last == 0 {
		return
	}
	thresh := min(max(int64(h.last)/rttDivisor, rttThreshMinNs), rttThreshMaxNs)
	if int64(h.current) >= int64(h.last)+thresh {
		h.baseline = h.current
		h.rounds = 1 // a partial round counts
	}
}
