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
