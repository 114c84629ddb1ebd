package cc

// NewReno is the congestion control of RFC 5681 with RFC 6928's initial window.
type NewReno struct{}

// slowStartSegmentsMax bounds what one acknowledgment adds to cwnd in slow start: L = 8, what RFC 9406 section 4.2 sets
// for a sender without pacing. RFC 5681's one segment would leave us crawling, because polling receivers acknowledge a
// burst of segments at once; counting octets already defeats ACK division.
const slowStartSegmentsMax = 8

func (NewReno) Name() string { return "reno" }

func (NewReno) Start(w *State, iw int) { *w = State{Cwnd: iw, Ssthresh: CwndMax} }

func (NewReno) Acked(w *State, a Sample) {
	if !a.Limited || a.Recovering {
		return
	}
	octets := slowStart(w, &a)
	if w.Cwnd < w.Ssthresh || a.AfterTimeout {
		return
	}
	// Congestion avoidance: one SMSS per cwnd of acknowledged octets (section 3.1, the recommended way).
	w.acked += octets
	if w.acked >= w.Cwnd {
		w.acked = min(w.acked-w.Cwnd, w.Cwnd)
		w.Cwnd = min(w.Cwnd+a.SMSS, CwndMax)
	}
}

// slowStart grows Cwnd while it is below Ssthresh and returns the octets that are left for congestion avoidance.
func slowStart(w *State, a *Sample) int {
	if w.Cwnd >= w.Ssthresh {
		return a.Acked
	}
	limit := slowStartSegmentsMax * a.SMSS
	if a.AfterTimeout {
		limit = a.SMSS // one ACK may cover what arrived before the timeout: RFC 3465 section 2.3
	}
	grow := min(a.Acked, limit, w.Ssthresh-w.Cwnd)
	w.Cwnd = min(w.Cwnd+grow, CwndMax)
	return a.Acked - grow
}

func (NewReno) Reduce(w *State, _ Cause, _ int64, flight, smss int) {
	w.save()
	w.Ssthresh = max(flight/2, 2*smss) // equation (4)
	w.acked = 0
}

func (NewReno) Timeout(w *State, _ int64, flight, smss int, first bool) {
	if first {
		w.save()
		w.Ssthresh = max(flight/2, 2*smss)
	}
	w.Cwnd = smss // section 3.1: the loss window
	w.acked = 0
}

func (NewReno) Undo(w *State) { w.restore() }
