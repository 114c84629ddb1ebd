package cc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// rounds runs slow start with one round-trip time per round, ten ACKs of a segment each. The very
// first ACK begins the first round; so the first ACK of each ten is the last one of the round
// before.
func rounds(alg Algorithm, w *State, una *uint64, rtts ...int64) {
	for _, rtt := range rtts {
		for range 10 {
			*una += testSMSS
			alg.Acked(w, Sample{Acked: testSMSS, SMSS: testSMSS, RTT: rtt * ms, SRTT: rtt * ms, Una: *una,
				Nxt: *una + 10*testSMSS, Limited: true})
		}
	}
}

// RFC 9406 section 4.2: the threshold is an eighth of the round-trip time, within 4 and 16 ms.
func TestHyStartThreshold(t *testing.T) {
	for _, tt := range []struct {
		base, next int64
		css        bool
	}{
		{1, 4, false}, {1, 5, true},
		{80, 89, false}, {80, 90, true},
		{200, 215, false}, {200, 216, true},
	} {
		for _, alg := range []Algorithm{NewReno{}, Cubic{}} {
			var w State
			alg.Start(&w, 10*testSMSS)
			una := uint64(1)
			rounds(alg, &w, &una, tt.base, tt.base, tt.next)
			if w.hystart.cautious() != tt.css {
				t.Errorf("%s: %d ms after %d ms: conservative %v", alg.Name(), tt.next, tt.base, !tt.css)
			}
		}
	}
}

// A round after one without a round-trip time has nothing to be compared with.
func TestHyStartWithoutAPreviousRound(t *testing.T) {
	var w State
	NewReno{}.Start(&w, 10*testSMSS)
	una := uint64(1)
	ack := func(rtt int64) {
		una += testSMSS
		NewReno{}.Acked(&w, Sample{Acked: testSMSS, SMSS: testSMSS, RTT: rtt, SRTT: 50 * ms, Una: una,
			Nxt: una + 10*testSMSS, Limited: true})
	}
	for range 11 { // the first begins a round, the last one ends it
		ack(-1)
	}
	require.Zero(t, w.hystart.last)
	for range hystartSamples {
		ack(50 * ms)
	}
	require.False(t, w.hystart.cautious())
}

// A quarter of the growth for five rounds, the first of them partial, then ssthresh is cwnd.
func TestHyStartConservativeSlowStart(t *testing.T) {
	var w State
	Cubic{}.Start(&w, 10*testSMSS)
	una := uint64(1)
	rounds(Cubic{}, &w, &una, 10, 10)
	require.Equal(t, 30*testSMSS, w.Cwnd)
	// One ACK ends the second round, seven are too few, the eighth tells; one more follows.
	rounds(Cubic{}, &w, &una, 20)
	require.Equal(t, 39*testSMSS+testSMSS/4, w.Cwnd)
	require.True(t, w.hystart.cautious())
	rounds(Cubic{}, &w, &una, 20, 20, 20, 20)
	require.Equal(t, 39*testSMSS+41*testSMSS/4, w.Cwnd)
	require.Equal(t, CwndMax, w.Ssthresh)
	rounds(Cubic{}, &w, &una, 20)
	if want := 39*testSMSS + 42*testSMSS/4; w.Ssthresh != want || w.Cwnd > want+testSMSS {
		t.Errorf("five rounds: ssthresh %d, want %d, cwnd %d", w.Ssthresh, want, w.Cwnd)
	}
}

// A round-trip time that falls below the baseline was jitter.
func TestHyStartResumesSlowStart(t *testing.T) {
	var w State
	NewReno{}.Start(&w, 10*testSMSS)
	una := uint64(1)
	rounds(NewReno{}, &w, &una, 10, 10, 20, 12)
	require.False(t, w.hystart.cautious(), "still conservative")
	require.Equal(t, CwndMax, w.Ssthresh, "still conservative")
	before := w.Cwnd
	rounds(NewReno{}, &w, &una, 12)
	require.Equal(t, before+10*testSMSS, w.Cwnd)
}

// Only the first slow start, the one without a threshold, is watched (RFC 9406 section 4.2).
func TestHyStartIsForTheFirstSlowStart(t *testing.T) {
	w := State{Cwnd: 10 * testSMSS, Ssthresh: 500 * testSMSS}
	una := uint64(1)
	rounds(NewReno{}, &w, &una, 10, 10, 100, 100)
	require.Equal(t, 50*testSMSS, w.Cwnd)
	require.Equal(t, hystart{}, w.hystart)
	var d State
	DCTCP{}.Start(&d, 10*testSMSS)
	una = 1
	rounds(DCTCP{}, &d, &una, 10, 10, 100, 100)
	require.Equal(t, 50*testSMSS, d.Cwnd, "DCTCP waits for a mark")
}
