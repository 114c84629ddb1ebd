package cc

// One acknowledgment adds to cwnd in slow start as much as it acknowledges, up to a bound where
// what cwnd admits goes at once. RFC 9406 section 4.3 sets L = 8 segments for that. A receiver
// that polls acknowledges what has come since it last looked, 64 KiB and more, and where a window
// arrives as one burst eight segments are all that it would grow by in a round trip. The burst
// that this answers has been in the network already: the bound is 64 KiB, or eight segments of
// more.
const (
	slowStartSegmentsMax = 8
	slowStartOctetsMax   = 64 << 10
)

// slowStart grows Cwnd while it is below Ssthresh and returns the octets that are left for
// congestion avoidance. With detect the first slow start, the one whose Ssthresh is arbitrarily
// high, ends by HyStart++.
func slowStart(w *State, a *Sample, detect bool) int {
	if w.Cwnd >= w.Ssthresh {
		return a.Acked
	}
	grow := a.Acked
	switch {
	case a.AfterTimeout:
		// one ACK may cover what arrived before the timeout: RFC 3465 section 2.3
		grow = min(grow, a.SMSS)
	case !a.Paced:
		grow = min(grow, max(slowStartSegmentsMax*a.SMSS, slowStartOctetsMax))
	}
	detect = detect && w.Ssthresh == CwndMax
	if detect && w.hystart.cautious() {
		w.Cwnd = min(w.Cwnd+grow/cssGrowthDivisor, CwndMax)
		if w.observe(a) {
			w.Ssthresh = w.Cwnd
		}
		return 0
	}
	grow = min(grow, w.Ssthresh-w.Cwnd)
	w.Cwnd += grow
	if detect {
		w.observe(a)
	}
	return a.Acked - grow
}
