package tcp

import "testing"

// req: 5681-3.1-6, 9293-MUST-19
func TestSlowStart(t *testing.T) {
	var n newReno
	var w congestion
	n.start(&w, 10000)
	n.acked(&w, 0, 100, 1000, false)
	if w.cwnd != 10100 {
		t.Errorf("cwnd %d: ACK division must not pay", w.cwnd)
	}
	n.acked(&w, 0, 50000, 1000, false)
	if w.cwnd != 10100+slowStartSegmentsMax*1000 {
		t.Errorf("cwnd %d after one large ACK", w.cwnd)
	}
	before := w.cwnd
	n.acked(&w, 0, 50000, 1000, true)
	if w.cwnd != before+1000 {
		t.Errorf("cwnd %d after a timeout", w.cwnd)
	}
}

// req: 5681-3.1-8, 5681-3.1-9
func TestCongestionAvoidanceAddsOneSegmentPerWindow(t *testing.T) {
	var n newReno
	w := congestion{cwnd: 20000, ssthresh: 20000}
	for round := 1; round <= 10; round++ {
		for octets := w.cwnd; octets > 0; octets -= 500 {
			n.acked(&w, 0, 500, 1000, false)
		}
		if w.cwnd != 20000+1000*round {
			t.Fatalf("round %d: cwnd %d", round, w.cwnd)
		}
	}
	large := congestion{cwnd: 1 << 28, ssthresh: 1000}
	for range 1 << 18 {
		n.acked(&large, 0, 1024, 1000, false)
	}
	if large.cwnd != 1<<28+1000 {
		t.Errorf("large window: %d", large.cwnd)
	}
}

// req: 5681-3.2-5, 5681-3.1-10, 5681-3.1-11
func TestReductions(t *testing.T) {
	var n newReno
	w := congestion{cwnd: 30000, ssthresh: cwndMax}
	n.loss(&w, 0, 20000, 1000)
	if w.cwnd != 10000 || w.ssthresh != 10000 {
		t.Errorf("loss: %+v: half of FlightSize, not of cwnd", w)
	}
	n.loss(&w, 0, 1000, 1000)
	if w.ssthresh != 2000 {
		t.Errorf("floor: %+v", w)
	}
	w = congestion{cwnd: 30000, ssthresh: cwndMax}
	n.timeout(&w, 0, 20000, 1000, true)
	if w.cwnd != 1000 || w.ssthresh != 10000 {
		t.Errorf("timeout: %+v", w)
	}
	n.timeout(&w, 0, 1000, 1000, false)
	if w.cwnd != 1000 || w.ssthresh != 10000 {
		t.Errorf("second timeout: %+v", w)
	}
}
