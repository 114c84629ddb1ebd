package cc

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	testSMSS = 1000
	ms       = int64(1_000_000)
	second   = 1000 * ms
)

// clock acknowledges segment by segment, evenly over each round trip, as a sender that cwnd
// limits sees it.
type clock struct {
	alg      Algorithm
	w        State
	now, rtt int64
	una      uint64
}

// round acknowledges one window of full segments.
func (c *clock) round() {
	n := max(c.w.Cwnd/testSMSS, 1)
	start := c.now
	for i := range n {
		c.now = start + c.rtt*int64(i)/int64(n)
		c.una += testSMSS
		c.alg.Acked(&c.w, Sample{Now: c.now, Acked: testSMSS, Delivered: testSMSS, Flight: c.w.Cwnd,
			SMSS: testSMSS, RTT: c.rtt, SRTT: c.rtt, MinRTT: c.rtt, Una: c.una,
			Nxt: c.una + uint64(c.w.Cwnd), Limited: true})
	}
	c.now = start + c.rtt
}

func (c *clock) loss() {
	c.alg.Reduce(&c.w, Loss, c.now, c.w.Cwnd, testSMSS)
	c.w.Cwnd = c.w.Ssthresh
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	require.False(t, math.Abs(got-want) > within, "%s: %.4f, want %.4f", what, got, want)
}

// Cube roots of segments/0.4, from a calculator.
// req: 8312-4-1
func TestCubicK(t *testing.T) {
	for _, tt := range []struct {
		segments int
		k        float64
	}{{0, 0}, {1, 1.357209}, {3, 1.957434}, {30, 4.217163}, {300, 9.085603}, {30_000, 42.171633},
		{1_000_000, 135.720881}} {
		near(t, "K", float64(riseTime(tt.segments*testSMSS, testSMSS))/(1<<20), tt.k, 1e-4)
	}
	for x, want := range map[uint64]uint64{0: 0, 1: 1, 7: 1, 8: 2, 26: 2, 27: 3, 1<<63 - 1: 2097151,
		1 << 63:        2097152,
		math.MaxUint64: 2642245} {
		require.Equal(t, want, cubeRoot(x), "cube root of %d", x)
	}
}

// W_cubic(t) = 0.4 (t - 4.217163)^3 + 100 segments, from a calculator.
// req: 8312-4-1
func TestCubicCurve(t *testing.T) {
	c := curve{wMax: 100 * testSMSS, k: riseTime(30*testSMSS, testSMSS)}
	for s, want := range map[int64]float64{0: 70, 1: 86.680764, 2: 95.640336, 4: 99.995903,
		5: 100.191899, 8: 121.652735,
		10: 177.353999, 12: 288.570495} {
		near(t, "W_cubic", float64(c.window(s*second, testSMSS))/testSMSS, want, 0.003)
	}
	for _, smss := range []int{testSMSS, smssMax} {
		require.Equal(t, CwndMax, c.window(math.MaxInt64, smss), "far future, SMSS %d", smss)
	}
	require.Equal(t, c.window(0, testSMSS), c.window(math.MinInt64, testSMSS), "before the epoch")
}

// The references are a floating-point transcription of RFC 9438 sections 4.2 to 4.5 in Python,
// one step per segment: w += (target - w)/w, or W_est.
// req: 8312-4-1
func TestCubicTrace(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 1000 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	want := map[int]float64{0: 700, 1: 709.7, 10: 788.4, 20: 857.6, 50: 972.7, 80: 999.5, 91: 1000,
		100: 1000.3, 120: 1009.9, 150: 1082.8}
	for round := 0; round <= 150; round++ {
		if w, ok := want[round]; ok {
			near(t, "cwnd in segments", float64(c.w.Cwnd)/testSMSS, w, w*0.003)
		}
		c.round()
	}
}

// At 100 microseconds the cubic curve hardly moves: 9/17 segments per round trip up to the window
// before the reduction, then one (RFC 9438 section 4.3). 100 round trips later, W_cubic would
// still be at 70.2 segments.
// req: 8312-4.2-1
func TestCubicShortRoundTripIsReno(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 100 * testSMSS, Ssthresh: CwndMax}, rtt: ms / 10}
	c.loss()
	want := map[int]float64{0: 70, 10: 75.25, 30: 85.74, 56: 99.39, 60: 102.79, 80: 122.58,
		120: 162.32}
	for round := 0; round <= 120; round++ {
		if w, ok := want[round]; ok {
			near(t, "cwnd in segments", float64(c.w.Cwnd)/testSMSS, w, 0.5)
		}
		c.round()
	}
}

// req: 8312-4.5-1
func TestCubicReductions(t *testing.T) {
	w := State{Cwnd: 100_000, Ssthresh: CwndMax}
	check := func(what string, ssthresh, wMax int) {
		t.Helper()
		require.Equal(t, ssthresh, w.Ssthresh, what)
		require.Equal(t, wMax, int(w.cubic.wMax), what)
	}
	reduce := func(why Cause, cwnd, flight int) {
		w.Cwnd = cwnd
		Cubic{}.Reduce(&w, why, 0, flight, 1000)
		w.Cwnd = w.Ssthresh
	}
	reduce(Loss, 100_000, 100_000)
	check("loss", 70_000, 100_000)
	reduce(Loss, 80_000, 80_000)
	check("fast convergence", 56_000, 68_000) // 80,000 (1 + 0.7)/2
	reduce(Mark, 90_000, 90_000)
	check("mark", 63_000, 90_000)
	reduce(Loss, 90_000, 40_000)
	check("a burst of ACKs has lowered FlightSize", 63_000, 90_000)
	reduce(Loss, 20_000, 90_000)
	// 0.7 and 0.85 of 63,000
	check("again in a recovery that holds cwnd below ssthresh", 44_100, 53_550)
	reduce(Loss, 20_000, 30_000)
	check("again, with less outstanding", 21_000, 25_500)
	reduce(Loss, 2500, 2500)
	check("floor", 2000, 2125)
	reduce(Mark, 1000, 1000)
	check("floor of a mark", 1000, 850)

	w = State{Cwnd: 100_000, Ssthresh: CwndMax}
	Cubic{}.Timeout(&w, 0, 100_000, 1000, true)
	check("timeout", 70_000, 0)
	require.Equal(t, 1000, w.Cwnd)
	Cubic{}.Timeout(&w, 0, 1000, 1000, false)
	check("second timeout", 70_000, 0)
}

// After a timeout slow start leads to ssthresh, and there W_max is cwnd and K is 0 (RFC 9438
// section 4.8). References as in TestCubicTrace; W_est rises from 500 by 9/17 a round trip until
// 714, the window of before.
// req: 8312-4.5-1
func TestCubicAfterTimeout(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 900_000, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	c.w.Cwnd = 714_300
	c.alg.Timeout(&c.w, c.now, c.w.Cwnd, testSMSS, true)
	for i := 0; c.w.Cwnd < c.w.Ssthresh; i++ {
		require.LessOrEqual(t, i, 20, "slow start does not end: %+v", c.w)
		c.round()
	}
	near(t, "cwnd", float64(c.w.Cwnd), 500_010, 1000)
	c.round()
	if c.w.cubic.k != 0 || c.w.cubic.wMax < 500_000 || c.w.cubic.wMax > 501_000 {
		t.Errorf("curve %+v", c.w.cubic.curve)
	}
	for range 39 {
		c.round()
	}
	// K = 0: 500 + 0.4 * 4.1^3 = 527.6 segments at t + RTT; Reno-friendly 500 + 40 * 9/17 = 521.
	near(t, "cwnd", float64(c.w.Cwnd)/testSMSS, 526.5, 2)
}

// req: 8312-5.8-1
func TestCubicApplicationLimited(t *testing.T) {
	busy := &clock{alg: Cubic{}, w: State{Cwnd: 1000 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	busy.loss()
	for range 20 {
		busy.round()
	}
	idle, held := *busy, *busy

	// A minute of silence, then the window is used again.
	idle.now += 60 * second
	// A minute in which the application sends too little.
	before := held.w.Cwnd
	for range 600 {
		held.una += testSMSS
		held.alg.Acked(&held.w, Sample{Now: held.now, Acked: testSMSS, SMSS: testSMSS, RTT: held.rtt,
			SRTT: held.rtt, Una: held.una, Nxt: held.una})
		held.now += 100 * ms
	}
	require.Equal(t, before, held.w.Cwnd)
	for range 5 {
		busy.round()
		idle.round()
		held.round()
	}
	near(t, "after a silence", float64(idle.w.Cwnd), float64(busy.w.Cwnd), float64(busy.w.Cwnd)*0.015)
	near(t, "after a trickle", float64(held.w.Cwnd), float64(busy.w.Cwnd), float64(busy.w.Cwnd)*0.015)
}

// An idle restart lowers cwnd without a congestion event (RFC 5681 section 4.1): neither curve
// may jump it back.
func TestCubicLoweredWindowDoesNotJump(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 100 * testSMSS, Ssthresh: CwndMax}, rtt: ms / 10}
	c.loss()
	for range 200 {
		c.round()
	}
	c.w.Cwnd = 71 * testSMSS
	before := c.w.Cwnd
	c.alg.Acked(&c.w, Sample{Now: c.now, Acked: 2 * testSMSS, SMSS: testSMSS, RTT: c.rtt, SRTT: c.rtt,
		Limited: true})
	require.LessOrEqual(t, c.w.Cwnd, before+testSMSS)
}

// Slow start in between, here after an idle restart, begins another congestion avoidance stage: t
// counts from there.
func TestCubicStageBeginsAfterSlowStart(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 1000 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	for range 90 {
		c.round()
	}
	c.w.Cwnd = 10 * testSMSS
	for c.w.Cwnd < c.w.Ssthresh {
		c.round()
	}
	restarted := c.now
	c.round()
	if e := c.w.cubic.epoch; e < restarted-c.rtt || e > c.now {
		t.Errorf("epoch %d ms, slow start ended at %d ms", e/ms, restarted/ms)
	}
}

// One ACK of three windows counts as one: 1.5 cwnd is the bound of section 4.2, far after K too.
func TestCubicBound(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 100 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	c.round()
	c.w.cubic.epoch -= 100 * second
	before := c.w.Cwnd
	c.alg.Acked(&c.w, Sample{Now: c.now, Acked: 3 * before, SMSS: testSMSS, RTT: c.rtt, SRTT: c.rtt,
		Limited: true})
	require.Equal(t, before+before/2, c.w.Cwnd)
}

// RFC 9438 section 4.9.2.
func TestCubicUndo(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 1000 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	for range 30 {
		c.round()
	}
	before, straight := c.w, *c
	c.loss()
	c.round()
	c.alg.Undo(&c.w)
	require.Equal(t, before.Cwnd, c.w.Cwnd, "undone: %+v", c.w)
	require.Equal(t, before.Ssthresh, c.w.Ssthresh, "undone: %+v", c.w)
	require.Equal(t, before.cubic.curve, c.w.cubic.curve, "undone: %+v", c.w)
	straight.round()
	for range 20 {
		c.round()
		straight.round()
	}
	near(t, "cwnd goes on as if nothing had been", float64(c.w.Cwnd), float64(straight.w.Cwnd),
		float64(straight.w.Cwnd)*0.01)

	c.loss()
	for c.w.Cwnd < int(c.w.prior.cwnd) {
		c.round()
	}
	late := c.w
	c.alg.Undo(&c.w)
	require.Equal(t, late, c.w, "undone too late")

	timedOut := State{Cwnd: 50_000, Ssthresh: CwndMax}
	Cubic{}.Timeout(&timedOut, 0, 50_000, 1000, true)
	Cubic{}.Undo(&timedOut)
	require.Equal(t, 50_000, timedOut.Cwnd)
	require.Equal(t, CwndMax, timedOut.Ssthresh)
}

// In recovery, and while a timeout is repaired, congestion avoidance waits.
func TestCubicWaitsForRecovery(t *testing.T) {
	c := &clock{alg: Cubic{}, w: State{Cwnd: 100 * testSMSS, Ssthresh: CwndMax}, rtt: 100 * ms}
	c.loss()
	before := c.w.Cwnd
	for _, a := range []Sample{{Recovering: true}, {AfterTimeout: true}} {
		a.Now, a.Acked, a.SMSS, a.SRTT, a.Limited = second, 50_000, testSMSS, c.rtt, true
		c.alg.Acked(&c.w, a)
		require.Equal(t, before, c.w.Cwnd, "%+v", a)
		require.False(t, c.w.cubic.running(), "%+v", a)
	}
}
