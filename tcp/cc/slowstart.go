package cc

// slowStartSegmentsMax bounds what one acknowledgment adds to cwnd in slow start: L = 8, what RFC 9406 section 4.3 sets
// for a sender without pacing. RFC 5681's one segment would leave us crawling, because polling receivers acknowledge a
// burst of segments at once; counting octets already defeats ACK division.
const slowStartSegmentsMax = 8

// slowStart grows Cwnd while it is below Ssthresh and returns the octets that are left for congestion avoidance. With
// detect the first slow start, the one whose Ssthresh is arbitrarily high, ends by HyStart++.
func slowStart(w *State, a *Sample, detect bool) int {
	if w.Cwnd >= w.Ssthresh {
		return a.Acked
	}
	grow := a.Acked
	switch {
	case a.AfterTimeout:
		grow = min(grow, a.SMSS) // one ACK may cover what arrived before the timeout: RFC 3465 section 2.3
	case !a.Paced:
		grow = min(grow, slowStartSegmentsMax*a.SMSS)
	}
	detect = detect && w.Ssthresh == CwndMax
	if detect && w.hystart.cautious() {
		w.Cwnd = min(w.Cwnd+grow/cssGrowthDivisor, CwndMax)
		if w.hystart.observe(a) {
			w.Ssthresh = w.Cwnd
		}
		return 0
	}
	grow = min(grow, w.Ssthresh-w.Cwnd)
	w.Cwnd += grow
	if detect {
		w.hystart.observe(a)
	}
	return a.Acked - grow
}
