package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// configured is an estimator with the bounds that it is asked with.
type configured struct {
	rtoEstimator
	cfg Config
}

func (e *configured) current() int64 { return e.scaled(&e.cfg, e.backoff) }

func estimator() *configured { return &configured{cfg: withDefaults(Config{RTOMinNs: 1})} }

// req: 6298-2-2
func TestRTOFirstSample(t *testing.T) {
	e := estimator()
	e.sample(100*ms, 1)
	require.Equal(t, []int64{100 * ms, 50 * ms, 300 * ms}, []int64{e.srtt, e.rttvar, e.current()})
}

// RTTVAR is computed from the old SRTT: the other order would give 56.25 ms here.
//
// req: 6298-2-3
func TestRTOOrderOfUpdate(t *testing.T) {
	e := estimator()
	e.sample(100*ms, 1)
	e.sample(200*ms, 1)
	require.Equal(t, []int64{62_500_000, 112_500_000, 362_500_000},
		[]int64{e.rttvar, e.srtt, e.current()})
}

// req: 6298-4-1
func TestRTOConstantRTTKeepsGranularity(t *testing.T) {
	e := estimator()
	for range 1000 {
		e.sample(10*ms, 1)
	}
	require.GreaterOrEqual(t, e.current(), 10*ms+rttGranularityNs)
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
		require.Equal(t, 200*ms, e.current()-e.srtt, "round trip of %d us", rtt/us)
	}
}

// req: 6298-2-4, 6298-2-5, 6298-5-5
func TestRTOBounds(t *testing.T) {
	cfg := withDefaults(Config{})
	e := configured{cfg: cfg}
	e.sample(0, 1)
	require.Equal(t, 200*ms, e.current())
	for _, want := range []int64{400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000} {
		e.backOff()
		require.Equal(t, want*ms, e.current())
	}
	for range 300 {
		e.backOff()
	}
	require.Equal(t, 60*sc, e.current())
	e.sample(0, 1)
	require.Equal(t, 200*ms, e.current(), "a sample does not end the backoff")
	e.sample(1000*sc, 1)
	require.Equal(t, 60*sc, e.current())
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
	require.LessOrEqual(t, unscaled.rttvar, reference.rttvar/10, "else this proves nothing")
}
