package tcp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// goodput is what a bulk transfer of n octets gets through link, in Mbit/s of virtual time.
func goodput(t testing.TB, seed uint64, link simLink, cfg Config,
	n uint64) (mbit float64, sender Stats) {
	s := newSim(seed, link, cfg, cfg, n, 0)
	start := s.now
	if err := s.a.output(); err != nil {
		t.Fatal(err)
	}
	for i := 0; s.a.c.AckedOffset() < n; i++ {
		if _, err := s.step(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if i > 10_000_000 {
			t.Fatalf("seed %d: no end", seed)
		}
	}
	return float64(n) * 8000 / float64(s.now-start), s.a.c.Stats()
}

// A cable almost without delay, whose peer acknowledges a burst at once: where the ACK of a whole
// burst is lost, a probe must find out, and not a timeout of 200 ms. A reference with a timeout
// per lost ACK gets 70 Mbit/s here. How soon the probe may go decides the goodput
// (docs/guides/tuning.md has the figures).
func TestGoodputOfACable(t *testing.T) {
	for _, tt := range sample.Of(t, 2, []struct {
		delay, ptoMin int64
		floor         float64
	}{
		{1 * us, 0, 9_000},
		{1 * us, 100 * us, 25_000},
		{10 * us, 0, 3500},
		{10 * us, 100 * us, 5500},
		{50 * us, 0, 1000},
		{50 * us, 100 * us, 1000},
	}) {
		sum := 0.0
		timeouts, probes := uint64(0), uint64(0)
		const seeds = 4
		cfg := Config{NoDelay: true, RTOMinNs: 5 * ms, PTOMinNs: tt.ptoMin}
		for seed := uint64(0); seed < seeds; seed++ {
			mbit, st := goodput(t, seed, simLink{delay: tt.delay, loss: 0.01}, cfg, 16<<20)
			sum += 1 / mbit
			timeouts += st.Timeouts
			probes += st.LossProbes
		}
		mean := seeds / sum
		t.Logf("round trip %3d us, least PTO %4d us: %5.0f Mbit/s, %d timeouts, %d probes",
			2*tt.delay/us, withDefaults(cfg).PTOMinNs/us, mean, timeouts, probes)
		if timeouts > 2*seeds || probes == 0 || mean < tt.floor {
			t.Errorf("want %.0f Mbit/s, at most %d timeouts, and probes", tt.floor, 2*seeds)
		}
	}
}
