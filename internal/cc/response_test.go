package cc

import (
	"fmt"
	"math"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// meanWindow is the mean window, in segments over time, when one segment of every 1/p is lost:
// segments are acknowledged evenly over each round trip, and a loss reduces cwnd at once, as the
// response functions assume.
func meanWindow(alg Algorithm, p float64, rtt int64, epochs int) float64 {
	w := State{Cwnd: 100 * testSMSS, Ssthresh: 2 * testSMSS}
	every := int(1 / p)
	now, una := 0.0, uint64(1)
	segments, start := 0, 0.0
	for epoch := range epochs {
		if epoch == epochs/3 { // what went before is the way to the steady state
			segments, start = 0, now
		}
		for range every {
			now += float64(rtt) * testSMSS / float64(w.Cwnd)
			una += testSMSS
			segments++
			alg.Acked(&w, Sample{Now: int64(now), Acked: testSMSS, SMSS: testSMSS, RTT: rtt, SRTT: rtt,
				MinRTT: rtt, Una: una, Nxt: una + uint64(w.Cwnd), Limited: true})
		}
		alg.Reduce(&w, Loss, int64(now), w.Cwnd, testSMSS)
		w.Cwnd = w.Ssthresh
	}
	return float64(segments) * float64(rtt) / (now - start)
}

// Reno's is sqrt(3/(2p)) (M. Mathis et al., The Macroscopic Behavior of the TCP Congestion
// Avoidance Algorithm, 1997; it is equation 3 of RFC 9438 with AIMD(1, 0.5)).
// req: 5681-3.1-8, 5681-3.2-5
func TestRenoResponse(t *testing.T) {
	for _, p := range []float64{1e-2, 1e-3, 1e-4, 1e-5} {
		got, want := meanWindow(NewReno{}, p, 10*ms, 60), math.Sqrt(1.5/p)
		near(t, fmt.Sprintf("p = %g", p), got/want, 1, 0.1)
	}
}

// RFC 8312 section 5.1 and RFC 9438 section 5.1, tables 1 and 2, columns C = 0.4: the larger of
// AIMD(9/17, 0.7), equation 3, and 1.054 (RTT/p)^0.75, equation 7.
// req: 8312-4-1, 8312-4.2-1, 8312-4.5-1
func TestCubicResponse(t *testing.T) {
	for _, tt := range sample.Of(t, 3, []struct {
		p      float64
		rtt    int64
		window float64
		epochs int
	}{
		{1e-2, 100 * ms, 12, 300}, {1e-4, 100 * ms, 187, 120}, {1e-5, 100 * ms, 1054, 60},
		{1e-6, 100 * ms, 5926, 15},
		{1e-2, 10 * ms, 12, 300}, {1e-3, 10 * ms, 38, 300}, {1e-4, 10 * ms, 120, 120},
		{1e-5, 10 * ms, 379, 60}, {1e-6, 10 * ms, 1200, 15},
	}) {
		got := meanWindow(Cubic{}, tt.p, tt.rtt, tt.epochs)
		near(t, fmt.Sprintf("p = %g, RTT %d ms: %.0f segments of %.0f", tt.p, tt.rtt/ms, got, tt.window),
			got/tt.window, 1, 0.1)
	}
}

// A switch that marks above a window of W segments, and a sender alone: alpha^2 (1 - alpha/4) =
// (2W + 1)/(W + 1)^2, and cwnd swings by (W + 1) alpha/2 (M. Alizadeh et al., Data Center TCP,
// SIGCOMM 2010, section 3.3). It holds while alpha averages over more than one swing: g = 1/16 <
// 1.386/sqrt(2W), section 3.4, so W < 245.
func TestDCTCPResponse(t *testing.T) {
	for _, threshold := range []int{20, 50, 100, 200} {
		w := State{Cwnd: threshold * testSMSS, Ssthresh: 2 * testSMSS, dctcp: dctcp{alpha: alphaOne / 2}}
		una, nxt, reducedTo := uint64(1), uint64(1), uint64(0)
		// each segment outstanding, whether it was marked: when it was sent, W others were
		var flight []bool
		var windows, sum, alphas, lowest, highest float64
		rtts := 300 * int(math.Sqrt(float64(threshold)))
		lowest = math.Inf(1)
		for round := range rtts {
			for end := nxt; una < end || round == 0 && una == nxt; {
				for (len(flight)+1)*testSMSS <= w.Cwnd {
					flight = append(flight, len(flight) >= threshold)
					nxt += testSMSS
				}
				marked := flight[0]
				flight = flight[1:]
				una += testSMSS
				a := Sample{Acked: testSMSS, SMSS: testSMSS, RTT: -1, Una: una, Nxt: nxt, Limited: true}
				if marked {
					a.Marked = testSMSS
				}
				DCTCP{}.Acked(&w, a)
				if marked && una > reducedTo {
					DCTCP{}.Reduce(&w, Mark, 0, w.Cwnd, testSMSS)
					w.Cwnd = w.Ssthresh
					reducedTo = nxt
				}
			}
			if round > rtts/2 {
				windows++
				sum += float64(w.Cwnd) / testSMSS
				alphas += float64(w.dctcp.alpha) / alphaOne
				lowest, highest = min(lowest, float64(w.Cwnd)/testSMSS), max(highest, float64(w.Cwnd)/testSMSS)
			}
		}
		W := float64(threshold)
		alpha := math.Sqrt((2*W + 1) / (W + 1) / (W + 1))
		for range 10 {
			alpha = math.Sqrt((2*W + 1) / (W + 1) / (W + 1) / (1 - alpha/4))
		}
		t.Logf("W %d: alpha %.4f of %.4f, cwnd %.1f, from %.1f to %.1f", threshold, alphas/windows, alpha,
			sum/windows, lowest, highest)
		near(t, "alpha", alphas/windows/alpha, 1, 0.1)
		near(t, "mean window", sum/windows/((W+1)*(1-alpha/4)), 1, 0.1)
	}
}
