package cc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ackWindows acknowledges n windows of ten segments; marked of each ten are marked.
func ackWindows(w *State, una *uint64, n, marked int) {
	for range n {
		for i := range 10 {
			*una += testSMSS
			a := Sample{Acked: testSMSS, SMSS: testSMSS, RTT: -1, Una: *una, Nxt: *una + 10*testSMSS - 1}
			if i < marked {
				a.Marked = testSMSS
			}
			DCTCP{}.Acked(w, a)
		}
	}
}

// alpha = 1 - (1 - 1/16)^n from 0, (15/16)^n from 1; RFC 8257 section 3.3. By calculator:
// (15/16)^10 = 0.52446, ^32 = 0.12680.
func TestDCTCPAlpha(t *testing.T) {
	var w State
	DCTCP{}.Start(&w, 10*testSMSS)
	una := uint64(1)
	alpha := func() float64 { return float64(w.dctcp.alpha) / alphaOne }
	near(t, "at start", alpha(), 1, 0)
	// the first window begins
	DCTCP{}.Acked(&w, Sample{Acked: 1, SMSS: testSMSS, RTT: -1, Una: una, Nxt: una + 10*testSMSS - 1})
	ackWindows(&w, &una, 10, 0)
	near(t, "ten windows without a mark", alpha(), 0.52446, 0.0001)
	ackWindows(&w, &una, 22, 0)
	near(t, "32 windows without a mark", alpha(), 0.12680, 0.0001)
	w.dctcp.alpha = 0
	ackWindows(&w, &una, 10, 10)
	near(t, "ten windows marked", alpha(), 0.47554, 0.0001)
	ackWindows(&w, &una, 200, 3)
	near(t, "three of ten marked", alpha(), 0.3, 0.0002)
	ackWindows(&w, &una, 400, 0)
	near(t, "no mark any more", alpha(), 0, 0.00002)
}

// RFC 8257 section 3.3, step 4.
func TestDCTCPWindowEndsAfterWindowEnd(t *testing.T) {
	var w State
	DCTCP{}.Start(&w, 10*testSMSS)
	DCTCP{}.Acked(&w, Sample{Acked: 1, RTT: -1, Una: 1, Nxt: 5000})
	DCTCP{}.Acked(&w, Sample{Acked: 4999, RTT: -1, Una: 5000, Nxt: 9000})
	require.EqualValues(t, alphaOne, w.dctcp.alpha)
	DCTCP{}.Acked(&w, Sample{Acked: 1, RTT: -1, Una: 5001, Nxt: 9000})
	require.EqualValues(t, alphaOne-alphaOne/16, w.dctcp.alpha)
	require.EqualValues(t, 9000, w.roundEnd)
}

func TestDCTCPReductions(t *testing.T) {
	w := State{Cwnd: 100_000, Ssthresh: CwndMax}
	for _, tt := range []struct {
		alpha    int32
		why      Cause
		ssthresh int
	}{
		{alphaOne, Mark, 50_000},
		{alphaOne / 4, Mark, 87_500},
		{alphaOne / 10, Mark, 95_001}, // 104857/2^20 is a little less than a tenth
		{0, Mark, 100_000},
		{alphaOne / 10, Loss, 30_000}, // half of FlightSize
	} {
		w.dctcp.alpha = tt.alpha
		DCTCP{}.Reduce(&w, tt.why, 0, 60_000, 1000)
		require.Equal(t, tt.ssthresh, w.Ssthresh, "alpha %d, cause %d", tt.alpha, tt.why)
	}
	w = State{Cwnd: 2100, Ssthresh: CwndMax, dctcp: dctcp{alpha: alphaOne}}
	DCTCP{}.Reduce(&w, Mark, 0, 2100, 1000)
	require.Equal(t, 2000, w.Ssthresh)
	DCTCP{}.Undo(&w)
	require.Equal(t, CwndMax, w.Ssthresh)
	require.Equal(t, 2100, w.Cwnd)
}

func TestDCTCPGrowsAsReno(t *testing.T) {
	d := &clock{alg: DCTCP{}, w: State{Cwnd: 20 * testSMSS, Ssthresh: 20 * testSMSS}, rtt: ms}
	r := &clock{alg: NewReno{}, w: State{Cwnd: 20 * testSMSS, Ssthresh: 20 * testSMSS}, rtt: ms}
	for range 50 {
		d.round()
		r.round()
		require.Equal(t, r.w.Cwnd, d.w.Cwnd)
	}
	require.Equal(t, 70*testSMSS, r.w.Cwnd)
}
