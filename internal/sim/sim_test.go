package sim

import (
	"flag"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/stretchr/testify/require"
)

var (
	seeds = flag.Int("seeds", 500, "how many seeds TestSeeds plays")
	first = flag.Uint64("first", uint64(time.Now().UnixMicro()),
		"the first of them; the clock's by default")
	failuresMax = flag.Int("failures", 100, "after so many failures the rest is not played")
)

const (
	coverageFrom  = 1000   // so many seeds must have had every Dimension
	progressEvery = 50_000 // seeds
)

// Whatever the network, the peer and the application do, memory is byte-equal, completions come
// once and in order, nothing leaks.
//
// req: DDP-7.3-6, DDP-7.3-7, DDP-7.4-2
func TestSeeds(t *testing.T) {
	require.Positive(t, *seeds, "SEEDS: want 1 or more")
	require.Positive(t, *failuresMax, "-failures: want 1 or more")
	s := series{
		first: *first, count: uint64(sample.Count(min(100, *seeds), *seeds)), failuresMax: *failuresMax,
		progressEvery: progressEvery,
		play:          play, log: t.Logf, fail: t.Errorf,
	}
	s.run()
	if s.count >= coverageFrom && s.played == s.count {
		require.Empty(t, s.coverage.Missing(), "dimensions that no run had")
	}
}

// play is Run with a panic for an error.
func play(wl Workload) (out Outcome, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
		}
	}()
	return wl.Run()
}

// The same seed is the same run.
func TestDeterminism(t *testing.T) {
	for seed := range uint64(8) {
		run := func() string {
			out, err := Draw(seed).Run()
			require.NoErrorf(t, err, "seed %d", seed)
			return fmt.Sprintf("%+v", out)
		}
		require.Equalf(t, run(), run(), "seed %d", seed)
	}
}

// What a host draws at random follows from the seed as well: STags, which are octets of frames, so
// that damage may depend on them; and how long an IPv6 neighbour is believed, after which frames
// are sent that draw faults.
func TestHostsFollowTheSeed(t *testing.T) {
	drawn := func(seed uint64) (rnic.STag, int64) {
		w, err := New(Config{Seed: seed, V6: true})
		require.NoError(t, err)
		h := w.Hosts[1]
		pd := h.Adapter.AllocPD()
		m, err := pd.Register(make([]byte, 1), 0)
		require.NoError(t, err)
		cq, err := h.Adapter.CreateCQ(16)
		require.NoError(t, err)
		opt := rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 1, RecvDepth: 1}
		qp, err := h.Adapter.CreateQP(opt)
		require.NoError(t, err)
		require.NoError(t, qp.StartConnect(t.Context(), "[fd09::1]:1", rnic.ConnParam{}))
		require.NoError(t, w.Run(time.Minute, func() bool { return qp.State() == rnic.Closed }))
		require.ErrorIs(t, qp.Err(), stack.ErrRefused)
		return m.STag(), h.Poller.Deadline()
	}
	stag, expiry := drawn(1)
	again, expiresAgain := drawn(1)
	require.Equal(t, stag, again)
	require.Equal(t, expiry, expiresAgain)
	other, otherwise := drawn(2)
	require.NotEqual(t, stag, other)
	require.NotEqual(t, expiry, otherwise)
}
