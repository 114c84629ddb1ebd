package cc

// DCTCP is RFC 8257, for a network whose switches mark early and whose senders all use it: never
// for the Internet (section 6). It reduces cwnd by the share of octets that were marked; everything
// else is NewReno.
type DCTCP struct{ NewReno }

// dctcp is the observation window of section 3.3. DCTCP.WindowEnd is State.roundEnd.
type dctcp struct {
	acked, marked int32 // DCTCP.BytesAcked, DCTCP.BytesMarked
	alpha         int32 // DCTCP.Alpha in units of 1/alphaOne
}

// g is 1/16 (section 4.2). alpha has bits enough that what is lost to rounding, under 16 units,
// never shows in cwnd.
const (
	alphaBits      = 20
	alphaOne       = 1 << alphaBits
	gShift         = 4
	windowCountMax = 1<<31 - 1 // octets: what arrives in a round trip is less than two windows
)

func (DCTCP) Name() string { return "dctcp" }

// ExactECN says that ECN with exact feedback is required.
func (DCTCP) ExactECN() bool { return true }

// Start sets alpha to 1: the first mark halves cwnd, as RFC 3168 would (section 3.3).
func (DCTCP) Start(w *State, iw int) {
	*w = State{Cwnd: iw, Ssthresh: CwndMax, dctcp: dctcp{alpha: alphaOne}}
}

// Acked counts in recovery too; marks then are as good as any. Slow start ends by a mark, not by
// a delay.
func (d DCTCP) Acked(w *State, a Sample) {
	w.count(&a)
	if !a.Limited || a.Recovering {
		return
	}
	octets := slowStart(w, &a, false)
	if w.Cwnd < w.Ssthresh || a.AfterTimeout {
		return
	}
	avoid(w, octets, a.SMSS)
}

// count is steps 1 to 8 of section 3.3.
func (w *State) count(a *Sample) {
	d := &w.dctcp
	if w.roundEnd == 0 {
		w.roundEnd = a.Nxt
		return
	}
	d.acked = int32(min(int(d.acked)+a.Acked, windowCountMax))
	d.marked = int32(min(int(d.marked)+min(a.Marked, a.Acked), windowCountMax))
	if a.Una <= w.roundEnd {
		return
	}
	d.alpha -= d.alpha >> gShift
	if d.marked > 0 {
		d.alpha += int32(int64(d.marked) << (alphaBits - gShift) / int64(d.acked))
	}
	w.roundEnd, d.acked, d.marked = a.Nxt, 0, 0
}

// Reduce answers a mark by alpha/2 (section 3.4), a loss as NewReno does (3.5). Two segments are
// the floor of both: one alone would wait for the peer's delayed ACK, a thousand round trips of a
// data centre.
func (d DCTCP) Reduce(w *State, why Cause, now int64, flight, smss int) {
	if why == Loss {
		d.NewReno.Reduce(w, why, now, flight, smss)
		return
	}
	w.save()
	w.Ssthresh = max(w.Cwnd-w.Cwnd*int(w.dctcp.alpha)>>(alphaBits+1), 2*smss)
	w.credit = 0
}
