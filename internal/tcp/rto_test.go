package tcp

import "testing"

// configured is an estimator with the bounds that it is asked with.
type configured struct {
	rtoEstimator
	cfg Config
}

func (e *configured) current() int64 { return e.scaled(&e.cfg, e.backoff) }

func estimator() *configured { return &configured{cfg: withDefaults(Config{RTOMinNs: 1})} }

// req: 6298-2-1
func TestRTOBeforeASample(t *testing.T) {
	if got := estimator().current(); got != sc {
		t.Errorf("%d", got)
	}
}

// req: 6298-2-2
func TestRTOFirstSample(t *testing.T) {
	e := estimator()
	e.sample(100*ms, 1)
	if e.srtt != 100*ms || e.rttvar != 50*ms || e.current() != 300*ms {
		t.Errorf("srtt %d rttvar %d rto %d", e.srtt, e.rttvar, e.current())
	}
}

// RTTVAR is computed from the old SRTT: the other order would give 56.25 ms here.
//
// req: 6298-2-3
func TestRTOOrderOfUpdate(t *testing.T) {
	e := estimator()
	e.sample(100*ms, 1)
	e.sample(200*ms, 1)
	if e.rttvar != 62_500_000 || e.srtt != 112_500_000 || e.current() != 362_500_000 {
		t.Errorf("srtt %d rttvar %d rto %d", e.srtt, e.rttvar, e.current())
	}
}

// req: 6298-4-1
func TestRTOConstantRTTKeepsGranularity(t *testing.T) {
	e := estimator()
	for range 1000 {
		e.sample(10*ms, 1)
	}
	if e.current() < 10*ms+rttGranularityNs {
		t.Errorf("rto %d", e.current())
	}
}

// The floor is one of the variance term: however long and steady the round trip, the RTO leaves
// room beyond it.
//
// req: 6298-2-4
func TestRTOFloorIsBeyondTheRoundTrip(t *testing.T) {
	cfg := withDefaults(Config{})
	for _, rtt := range []int64{us, 10 * ms, 150 * ms, sc} {
		e := configured{cfg: cfg}
		for range 1000 {
			e.sample(rtt, 1)
		}
		if got := e.current() - e.srtt; got != 200*ms {
			t.Errorf("round trip of %d us: RTO %d us beyond SRTT", rtt/us, got/us)
		}
	}
}

// req: 6298-2-4, 6298-2-5, 6298-5-5
func TestRTOBounds(t *testing.T) {
	cfg := withDefaults(Config{})
	e := configured{cfg: cfg}
	e.sample(0, 1)
	if e.current() != 200*ms {
		t.Errorf("floor %d", e.current())
	}
	for _, want := range []int64{400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
		e.backOff()
		if e.current() != want*ms {
			t.Errorf("after backoff %d ms, want %d", e.current()/ms, want)
		}
	}
	for range 300 {
		e.backOff()
	}
	if e.current() != 60*sc {
		t.Errorf("%d", e.current())
	}
	e.sample(0, 1)
	if e.current() != 200*ms {
		t.Errorf("a sample does not end the backoff: %d", e.current())
	}
	e.sample(1000*sc, 1)
	if e.current() != 60*sc {
		t.Errorf("ceiling %d", e.current())
	}
}

// req: 6298-5-2
func TestRetransmissionTimer(t *testing.T) {
	s := accepted(t, plain(), "")
	if s.c.Deadline() != never {
		t.Error("armed with nothing in flight")
	}
	s.push(100)
	start := s.now
	if got := s.c.timers.rtxAt; got != start+200*ms {
		t.Errorf("armed for %d", got-start)
	}
	s.advance(50 * ms)
	s.push(100)
	if got := s.c.timers.rtxAt; got != start+200*ms {
		t.Errorf("restarted by new data: %d", got-start)
	}
	s.in(". 1 ack 1")
	if got := s.c.timers.rtxAt; got != start+200*ms {
		t.Errorf("restarted by a duplicate ACK: %d", got-start)
	}
	s.in(". 1 ack 101")
	if got := s.c.timers.rtxAt; got <= start+200*ms {
		t.Errorf("not restarted by an ACK of new data: %d", got-start)
	}
	s.in(". 1 ack 201")
	if s.c.Deadline() != never {
		t.Error("armed after all was acknowledged")
	}
}

// req: 6298-3-2
func TestSamplePerRoundTrip(t *testing.T) {
	s := accepted(t, plain(), "")
	acked := 1
	for range 50 {
		acked += 1000 * s.fill()
		s.now += 30 * ms
		s.in(". 1 ack " + itoa(acked))
		s.drainHandles()
	}
	if got := s.c.Stats().SRTTNs; got < 29*ms || got > 31*ms {
		t.Errorf("SRTT %d us", got/us)
	}
}

// With many samples per round trip the estimator remembers as long as RFC 6298 does with one: a
// spike of one sample moves it by a share, and a lasting change is learned in as many round trips.
//
// req: 7323-4.2-1
func TestManySamplesPerRoundTrip(t *testing.T) {
	const perRTT = 64
	reference, scaled, unscaled := estimator(), estimator(), estimator()
	for i := range int64(100) {
		rtt := 10*ms + i%7*ms
		reference.sample(rtt, 1)
		for range perRTT {
			scaled.sample(rtt, perRTT)
			unscaled.sample(rtt, 1)
		}
		if i < 20 {
			continue
		}
		if d := scaled.srtt - reference.srtt; d < -ms/2 || d > ms/2 {
			t.Fatalf("round %d: SRTT %d us, with one sample %d", i, scaled.srtt/us, reference.srtt/us)
		}
		if d := scaled.rttvar - reference.rttvar; d < -ms/2 || d > ms/2 {
			t.Fatalf("round %d: RTTVAR %d us, with one sample %d", i, scaled.rttvar/us, reference.rttvar/us)
		}
	}
	if unscaled.rttvar > reference.rttvar/10 {
		t.Errorf("without scaling RTTVAR would be %d us: this proves nothing", unscaled.rttvar/us)
	}
}

// RFC 6928 instead of RFC 5681's table (docs/requirements/deviations.md).
func TestInitialWindowBySegmentSize(t *testing.T) {
	for _, tt := range []struct{ mss, config, want int }{
		{536, 0, 5360}, {1460, 0, 14600}, {2000, 0, 14600}, {8960, 0, 17920}, {1000, 3, 3000},
	} {
		cfg := plain()
		cfg.MSS, cfg.InitialWindow = tt.mss, tt.config
		s := newScript(t, cfg)
		s.accept("S 0:1 win 60000 mss " + itoa(tt.mss))
		s.in(". 1 ack 1")
		if got := s.c.Stats().Cwnd; got != tt.want {
			t.Errorf("MSS %d: initial window %d, want %d", tt.mss, got, tt.want)
		}
	}
}
