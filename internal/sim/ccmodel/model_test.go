package ccmodel

import (
	"fmt"
	"math"
	"testing"

	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wide is a path that never queues: goodput is the mean window by round-trip time.
func wide(rtt, loss float64) Path {
	return Path{BitsPerSecond: 1e14, RTT: rtt, Loss: loss, SMSS: 1000, QueueMax: 1 << 30}
}

// tenGigabit has a queue of one bandwidth-delay product, 1 ms at least.
func tenGigabit(rtt, loss float64, smss int) Path {
	return Path{BitsPerSecond: 1e10, RTT: rtt, Loss: loss, SMSS: smss, Overhead: 90,
		QueueMax: int(1.25e9 * max(rtt, 1e-3))}
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	assert.InEpsilon(t, want, got, part, what)
}

// Reno over independent losses has 1.31/sqrt(p) where periodic ones give sqrt(3/2)/sqrt(p) (T. Ott,
// J. Kemperman, M. Mathis, The Stationary Behavior of Ideal TCP Congestion Avoidance, 1996). At 1 %
// a window is a dozen whole segments, and every reduction costs it a round trip without growth:
// 1.16.
func TestRandomLossesReno(t *testing.T) {
	for _, tt := range sample.Of(t, 1, []struct {
		p, constant, part float64
	}{{1e-4, 1.31, 0.04}, {1e-3, 1.29, 0.04}, {1e-2, 1.16, 0.04}}) {
		window := Goodput("reno", wide(0.1, tt.p), max(500, 0.2/tt.p)) / 8000 * 0.1
		within(t, fmt.Sprintf("p = %g", tt.p), window*math.Sqrt(tt.p), tt.constant, tt.part)
	}
}

// CUBIC lies above its response function (RFC 9438 section 5.1: the larger of AIMD and cubic) by
// the same randomness, and most where the two meet, at 0.1 s and 1e-3.
func TestRandomLossesCubic(t *testing.T) {
	for _, tt := range sample.Of(t, 2, []struct{ p, rtt, least, most float64 }{
		{1e-2, 0.1, 0.95, 1.15}, {1e-3, 0.1, 1.10, 1.30}, {1e-4, 0.1, 1.05, 1.25},
		{1e-2, 0.001, 0.95, 1.15}, {1e-3, 0.001, 1.05, 1.25},
	}) {
		window := Goodput("cubic", wide(tt.rtt, tt.p), max(6000, 2/tt.p)*tt.rtt) / 8000 * tt.rtt
		response := max(math.Sqrt(1.5/tt.p), 1.054*math.Pow(tt.rtt/tt.p, 0.75))
		middle := (tt.least + tt.most) / 2
		assert.InDelta(t, middle*response, window, (tt.most-middle)*response, "%+v", tt)
	}
}

// Without losses, and with a queue of a bandwidth-delay product, the rate is the limit, less
// headers.
func TestRateIsTheLimit(t *testing.T) {
	for _, rtt := range []float64{1e-4, 1e-2} {
		for _, name := range []string{"reno", "cubic"} {
			within(t, name, Goodput(name, tenGigabit(rtt, 0, 8948), 200*max(rtt, 1e-3)+10*rtt),
				1e10*8948/9038, 0.05)
		}
	}
	dctcp := tenGigabit(1e-4, 0, 1448)
	dctcp.MarkAt = 65 * 1538
	r := Transfer("dctcp", dctcp, 0.2, 0)
	within(t, "dctcp", r.Goodput, 1e10*1448/1538, 0.02)
	require.Zero(t, r.Lost, "marks, not losses")
	require.GreaterOrEqual(t, r.Reductions, 50)
}

// Half a sawtooth without a queue: Reno keeps 3/4 of the rate.
func TestNoQueueCostsReno(t *testing.T) {
	p := tenGigabit(1e-4, 0, 1448)
	p.QueueMax = 3000
	p.InitialWindow = 2
	within(t, "reno", Goodput("reno", p, 0.5), 0.75*1e10*1448/1538, 0.08)
}

func TestWindowIsTheLimit(t *testing.T) {
	p := wide(0.1, 0)
	p.WindowMax = 1_000_000
	within(t, "window", Goodput("cubic", p, 60), 80e6, 0.03)
}

func TestMoreLossIsLess(t *testing.T) {
	for _, name := range sample.Of(t, 1, []string{"reno", "cubic", "dctcp"}) {
		last := math.Inf(1)
		for _, loss := range []float64{1e-4, 1e-3, 1e-2, 1e-1, 0.4} {
			g := Goodput(name, tenGigabit(1e-2, loss, 1448), 20)
			require.LessOrEqual(t, g, last/2, "%s at %g", name, loss)
			last = g
		}
		require.NotZero(t, Transfer(name, tenGigabit(1e-2, 0.4, 1448), 20, 0).Timeouts, "at 40 %%")
	}
}

// HyStart++ sees a queue only when it lasts from one round to the next, and then grows the window
// by a quarter per round for five more: a queue of one bandwidth-delay product still overflows, by
// much less (RFC 9406). A deep one does not.
func TestSlowStartEndsByDelay(t *testing.T) {
	p := tenGigabit(0.1, 0, 8948)
	p.InitialWindow, p.RTOMin = 10, 0.2
	lost := map[bool]int{}
	for _, hystart := range []bool{false, true} {
		l := &reno{hystart: hystart}
		l.start(10)
		lost[hystart] = run(p, l, 2, 0).Lost
	}
	require.LessOrEqual(t, lost[true], lost[false]*6/10, "segments lost, and without HyStart++")
	p.QueueMax *= 16
	r := Transfer("cubic", p, 10, 0)
	require.Zero(t, r.Lost, "a deep queue")
	require.NotZero(t, r.SlowStartMs)
}

// integers is package cc in place of the model's own arithmetic.
type integers struct {
	alg  cc.Algorithm
	w    cc.State
	smss int
}

func (l *integers) start(iw float64) { l.alg.Start(&l.w, int(iw)*l.smss) }
func (l *integers) window() float64  { return float64(l.w.Cwnd) / float64(l.smss) }
func (l *integers) slowStart() bool  { return l.w.Cwnd < l.w.Ssthresh }

func ns(seconds float64) int64 { return int64(seconds * 1e9) }

func (l *integers) acked(a ack) {
	s := cc.Sample{Now: ns(a.now), Acked: l.smss, Delivered: l.smss, Flight: l.w.Cwnd, SMSS: l.smss,
		RTT:  ns(a.rtt),
		SRTT: ns(a.srtt), Una: uint64(a.una), Nxt: uint64(a.nxt), Limited: a.limited,
		Recovering: a.recovering}
	if a.marked {
		s.Marked = l.smss
	}
	l.alg.Acked(&l.w, s)
}

func (l *integers) reduce(now, flight float64, mark bool) {
	why := cc.Loss
	if mark {
		why = cc.Mark
	}
	l.alg.Reduce(&l.w, why, ns(now), min(int(flight*float64(l.smss)), l.w.Cwnd), l.smss)
	l.w.Cwnd = l.w.Ssthresh
}

func (l *integers) timeout(now, flight float64) {
	l.alg.Timeout(&l.w, ns(now), int(flight*float64(l.smss)), l.smss, true)
}

// Package cc and the model were written from the RFCs apart from each other, in integers of octets
// and in floating-point segments: through the same path they must come to the same goodput.
// req: 8312-4-1, 8312-4.2-1, 8312-4.5-1
func TestAgreesWithPackageCC(t *testing.T) {
	for _, name := range cc.Names() {
		alg, err := cc.ByName(name)
		require.NoError(t, err)
		for _, rtt := range sample.Of(t, 1, []float64{1e-4, 1e-2, 1e-1}) {
			for _, loss := range []float64{0, 1e-4, 1e-3, 1e-2} {
				p := tenGigabit(rtt, loss, 1448)
				p.InitialWindow, p.RTOMin = 10, 0.2
				if name == "dctcp" {
					p.MarkAt = 65 * 1538
				}
				duration := map[float64]float64{1e-4: 0.2, 1e-2: 10, 1e-1: 60}[rtt]
				if loss == 0 {
					duration = min(duration, 5)
				}
				var model, integer float64
				for seed := range uint64(4) {
					model += Transfer(name, p, duration, seed).Goodput
					l := &integers{alg: alg, smss: p.SMSS}
					l.start(10)
					integer += run(p, l, duration, seed).Goodput
					if loss == 0 {
						break
					}
				}
				within(t, fmt.Sprintf("%s, RTT %g, loss %g", name, rtt, loss), integer, model, 0.05)
			}
		}
	}
}
