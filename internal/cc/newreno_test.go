package cc

import "testing"

// req: 5681-3.1-6, 9293-MUST-19
func TestSlowStart(t *testing.T) {
	var n NewReno
	var w State
	n.Start(&w, 10000)
	n.Acked(&w, Sample{Acked: 100, SMSS: 1000, Limited: true})
	if w.Cwnd != 10100 {
		t.Errorf("cwnd %d: ACK division must not pay", w.Cwnd)
	}
	n.Acked(&w, Sample{Acked: 100_000, SMSS: 1000, Limited: true})
	if w.Cwnd != 10100+slowStartOctetsMax {
		t.Errorf("cwnd %d after one large ACK", w.Cwnd)
	}
	jumbo := State{Cwnd: 90_000, Ssthresh: CwndMax}
	n.Acked(&jumbo, Sample{Acked: 90_000, SMSS: 9000, Limited: true})
	if jumbo.Cwnd != 90_000+slowStartSegmentsMax*9000 {
		t.Errorf("cwnd %d after one large ACK of large segments", jumbo.Cwnd)
	}
	paced := w
	n.Acked(&paced, Sample{Acked: 100_000, SMSS: 1000, Limited: true, Paced: true})
	if paced.Cwnd != w.Cwnd+100_000 {
		t.Errorf("cwnd %d after one large ACK, paced", paced.Cwnd)
	}
	before := w.Cwnd
	n.Acked(&w, Sample{Acked: 50000, SMSS: 1000, Limited: true, AfterTimeout: true})
	if w.Cwnd != before+1000 {
		t.Errorf("cwnd %d after a timeout", w.Cwnd)
	}
}

// req: 5681-3.1-8, 5681-3.1-9
func TestCongestionAvoidanceAddsOneSegmentPerWindow(t *testing.T) {
	var n NewReno
	w := State{Cwnd: 20000, Ssthresh: 20000}
	for round := 1; round <= 10; round++ {
		for octets := w.Cwnd; octets > 0; octets -= 500 {
			n.Acked(&w, Sample{Acked: 500, SMSS: 1000, Limited: true})
		}
		if w.Cwnd != 20000+1000*round {
			t.Fatalf("round %d: cwnd %d", round, w.Cwnd)
		}
	}
	large := State{Cwnd: 1 << 28, Ssthresh: 1000}
	for range 1 << 18 {
		n.Acked(&large, Sample{Acked: 1024, SMSS: 1000, Limited: true})
	}
	if large.Cwnd != 1<<28+1000 {
		t.Errorf("large window: %d", large.Cwnd)
	}
}

// req: 5681-3.2-5, 5681-3.1-10, 5681-3.1-11, 3168-6.1.2-1
func TestReductions(t *testing.T) {
	var n NewReno
	w := State{Cwnd: 30000, Ssthresh: CwndMax}
	n.Reduce(&w, Loss, 0, 20000, 1000)
	if w.Ssthresh != 10000 {
		t.Errorf("loss: %+v: half of FlightSize, not of cwnd", w)
	}
	n.Reduce(&w, Loss, 0, 1000, 1000)
	if w.Ssthresh != 2000 {
		t.Errorf("floor: %+v", w)
	}
	n.Reduce(&w, Mark, 0, 20000, 1000)
	if w.Ssthresh != 10000 {
		t.Errorf("mark: %+v", w)
	}
	n.Reduce(&w, Mark, 0, 1000, 1000)
	if w.Ssthresh != 1000 {
		t.Errorf("floor of a mark: %+v", w)
	}
	w = State{Cwnd: 30000, Ssthresh: CwndMax}
	n.Timeout(&w, 0, 20000, 1000, true)
	if w.Cwnd != 1000 || w.Ssthresh != 10000 {
		t.Errorf("timeout: %+v", w)
	}
	n.Timeout(&w, 0, 1000, 1000, false)
	if w.Cwnd != 1000 || w.Ssthresh != 10000 {
		t.Errorf("second timeout: %+v", w)
	}
}
