package analysis

import "github.com/rnicd/rnicd/internal/cc"

// steady holds cwnd where it is, whatever is lost: what is compared is how much memory receivers
// need for the same octets in flight, not what congestion control makes of a loss.
type steady struct{ octets int }

func (steady) Name() string { return "steady" }

func (s steady) Start(w *cc.State, _ int) { *w = cc.State{Cwnd: s.octets, Ssthresh: s.octets} }

func (s steady) Acked(w *cc.State, a cc.Sample) {
	if !a.Recovering {
		w.Cwnd = s.octets
	}
}

func (s steady) Reduce(w *cc.State, _ cc.Cause, _ int64, _, _ int) { w.Ssthresh = s.octets }

func (s steady) Timeout(w *cc.State, _ int64, _, _ int, _ bool) {
	w.Cwnd, w.Ssthresh = s.octets, s.octets
}

func (s steady) Undo(w *cc.State) { w.Cwnd, w.Ssthresh = s.octets, s.octets }
