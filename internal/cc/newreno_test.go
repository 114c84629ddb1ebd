package cc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// req: 5681-3.1-6, 9293-MUST-19
func TestSlowStart(t *testing.T) {
	var n NewReno
	var w State
	n.Start(&w, 10000)
	n.Acked(&w, Sample{Acked: 100, SMSS: 1000, Limited: true})
	require.Equal(t, 10100, w.Cwnd)
	n.Acked(&w, Sample{Acked: 100_000, SMSS: 1000, Limited: true})
	require.Equal(t, 10100+slowStartOctetsMax, w.Cwnd)
	jumbo := State{Cwnd: 90_000, Ssthresh: CwndMax}
	n.Acked(&jumbo, Sample{Acked: 90_000, SMSS: 9000, Limited: true})
	require.Equal(t, 90_000+slowStartSegmentsMax*9000, jumbo.Cwnd)
	paced := w
	n.Acked(&paced, Sample{Acked: 100_000, SMSS: 1000, Limited: true, Paced: true})
	require.Equal(t, w.Cwnd+100_000, paced.Cwnd)
	before := w.Cwnd
	n.Acked(&w, Sample{Acked: 50000, SMSS: 1000, Limited: true, AfterTimeout: true})
	require.Equal(t, before+1000, w.Cwnd)
}

// req: 5681-3.1-8, 5681-3.1-9
func TestCongestionAvoidanceAddsOneSegmentPerWindow(t *testing.T) {
	var n NewReno
	w := State{Cwnd: 20000, Ssthresh: 20000}
	for round := 1; round <= 10; round++ {
		for octets := w.Cwnd; octets > 0; octets -= 500 {
			n.Acked(&w, Sample{Acked: 500, SMSS: 1000, Limited: true})
		}
		require.Equal(t, 20000+1000*round, w.Cwnd, "round %d", round)
	}
	large := State{Cwnd: 1 << 28, Ssthresh: 1000}
	for range 1 << 18 {
		n.Acked(&large, Sample{Acked: 1024, SMSS: 1000, Limited: true})
	}
	require.EqualValues(t, 1<<28+1000, large.Cwnd)
}

// req: 5681-3.2-5, 5681-3.1-10, 5681-3.1-11, 3168-6.1.2-1
func TestReductions(t *testing.T) {
	var n NewReno
	w := State{Cwnd: 30000, Ssthresh: CwndMax}
	n.Reduce(&w, Loss, 0, 20000, 1000)
	require.Equal(t, 10000, w.Ssthresh)
	n.Reduce(&w, Loss, 0, 1000, 1000)
	require.Equal(t, 2000, w.Ssthresh)
	n.Reduce(&w, Mark, 0, 20000, 1000)
	require.Equal(t, 10000, w.Ssthresh)
	n.Reduce(&w, Mark, 0, 1000, 1000)
	require.Equal(t, 1000, w.Ssthresh, "floor of a mark")
	w = State{Cwnd: 30000, Ssthresh: CwndMax}
	n.Timeout(&w, 0, 20000, 1000, true)
	require.Equal(t, 1000, w.Cwnd)
	require.Equal(t, 10000, w.Ssthresh)
	n.Timeout(&w, 0, 1000, 1000, false)
	require.Equal(t, 1000, w.Cwnd)
	require.Equal(t, 10000, w.Ssthresh)
}
