package cc

// NewReno is the congestion control of RFC 5681 with RFC 6928's initial window and the slow start
// of RFC 9406.
type NewReno struct{}

func (NewReno) Name() string { return "reno" }

func (NewReno) Start(w *State, iw int) { *w = State{Cwnd: iw, Ssthresh: CwndMax} }

func (NewReno) Acked(w *State, a Sample) {
	if !a.Limited || a.Recovering {
		return
	}
	octets := slowStart(w, &a, true)
	if w.Cwnd < w.Ssthresh || a.AfterTimeout {
		return
	}
	avoid(w, octets, a.SMSS)
}

// avoid is congestion avoidance: one SMSS per cwnd of acknowledged octets (section 3.1, the
// recommended way).
func avoid(w *State, octets, smss int) {
	credit := int(w.credit) + octets
	if credit >= w.Cwnd {
		credit = min(credit-w.Cwnd, w.Cwnd)
		w.Cwnd = min(w.Cwnd+smss, CwndMax)
	}
	w.credit = int32(credit)
}

func (NewReno) Reduce(w *State, why Cause, _ int64, flight, smss int) {
	w.save()
	w.Ssthresh = max(flight/2, floor(why, smss)) // equation (4)
	w.credit = 0
}

func (NewReno) Timeout(w *State, _ int64, flight, smss int, first bool) {
	if first {
		w.save()
		w.Ssthresh = max(flight/2, 2*smss)
	}
	w.Cwnd = smss // section 3.1: the loss window
	w.credit = 0
}

func (NewReno) Undo(w *State) { w.restore() }
