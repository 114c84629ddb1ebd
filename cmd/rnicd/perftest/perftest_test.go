package perftest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/rnic"
)

// Every program, between our own two ends: both make all the messages, and see the connection's orderly end.
func TestPrograms(t *testing.T) {
	for _, p := range Programs {
		for _, size := range []int{2, 5000, 65536} {
			t.Run(p.String(), func(t *testing.T) {
				test := perf.Test{Op: p.Op, Latency: p.Latency, Size: size, Iterations: 300, TxDepth: 128, RxDepth: 100}
				overBoth(t, ServerConfig{Test: test}, func(r *rig) {
					for range 2 { // the server serves on
						res, err := r.run(test, rnic.QPOptions{})
						require.NoError(t, err)
						require.EqualValues(t, 300, res.Iterations)
						s := r.served()
						require.NoError(t, s.Err)
						checkServed(t, s, res)
					}
				})
			})
		}
	}
}

// A client that was told another length and number than the server goes through with it, where nobody waits for the last octet, and the
// server says what came. Figures that cannot be are no reason to say anything else than it was told.
func TestOtherNumbers(t *testing.T) {
	for _, p := range []Program{{perf.Write, false}, {perf.Read, false}, {perf.Read, true}} {
		t.Run(p.String(), func(t *testing.T) {
			told := perf.Test{Op: p.Op, Latency: p.Latency, Size: 5000, Iterations: 300, TxDepth: 16}
			overBoth(t, ServerConfig{Test: told}, func(r *rig) {
				made := told
				made.Size, made.Iterations = 100, 20
				_, err := r.run(made, rnic.QPOptions{})
				require.NoError(r.t, err)
				s := r.served()
				require.NoError(r.t, s.Err)
				require.Equal(r.t, []int{100, 20}, []int{s.Test.Size, s.Test.Iterations})
			})
		})
	}
	for _, report := range []Report{{}, {Iterations: 7}, {Iterations: 1<<64 - 1}} {
		s := Served{Test: plain, Report: report, Counters: rnic.Stats{Placed: rnic.Placed{Direct: 1000}}}
		s.came()
		require.Equal(t, plain, s.Test)
	}
}

// checkServed: the server's counters say that what the client measured has happened.
func checkServed(t *testing.T, s Served, res perf.Result) {
	t.Helper()
	const n = 300
	octets := s.Counters.Placed.Direct + s.Counters.Placed.Reassembled
	switch {
	case s.Test.Op == perf.Read:
		require.EqualValues(t, n, s.Counters.ReadsServed)
		require.EqualValues(t, n*s.Test.Size, s.Counters.PayloadSent)
	default:
		require.EqualValues(t, n*s.Test.Size, octets)
	}
	if !s.Test.Latency && s.Test.Op != perf.Send {
		require.EqualValues(t, n, s.Report.Iterations)
		require.InEpsilon(t, res.Bandwidth/(1<<20), s.Report.Average, 1e-9)
	}
}
