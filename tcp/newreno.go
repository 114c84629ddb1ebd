package tcp

// newReno is the congestion control of RFC 5681 with RFC 6928's initial window.
type newReno struct{}

// slowStartSegmentsMax bounds what one acknowledgment adds to cwnd in slow start: L = 8, what RFC 9406 section 4.2 sets
// for a sender without pacing. RFC 5681's one segment would leave us crawling, because polling receivers acknowledge a
// burst of segments at once; counting octets already defeats ACK division.
const slowStartSegmentsMax = 8

func (*newReno) start(w *congestion, iw int) {
	*w = congestion{cwnd: iw, ssthresh: cwndMax}
}

func (*newReno) acked(w *congestion, _ int64, octets, smss int, afterTimeout bool) {
	if w.cwnd < w.ssthresh {
		limit := slowStartSegmentsMax * smss
		if afterTimeout {
			limit = smss // one ACK may cover what arrived before the timeout: RFC 3465 section 2.3
		}
		grow := min(octets, limit, w.ssthresh-w.cwnd)
		w.cwnd = min(w.cwnd+grow, cwndMax)
		octets -= grow
		if w.cwnd < w.ssthresh || afterTimeout {
			return
		}
	}
	// Congestion avoidance: one SMSS per cwnd of acknowledged octets (section 3.1, the recommended way).
	w.acked += octets
	if w.acked >= w.cwnd {
		w.acked = min(w.acked-w.cwnd, w.cwnd)
		w.cwnd = min(w.cwnd+smss, cwndMax)
	}
}

func (*newReno) loss(w *congestion, _ int64, flight, smss int) {
	w.ssthresh = max(flight/2, 2*smss) // equation (4)
	w.cwnd = w.ssthresh
	w.acked = 0
}

func (*newReno) timeout(w *congestion, _ int64, flight, smss int, first bool) {
	if first {
		w.ssthresh = max(flight/2, 2*smss)
	}
	w.cwnd = smss // section 3.1: the loss window
	w.acked = 0
}
