package daemon

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hangHere is where the test's Poller stands.
func hangHere(until <-chan struct{}) { <-until }

// A Poller that hangs is reported within a moment, once, with where it stands, and again when it
// turns.
func TestWatchdogReportsWhereAPollerStands(t *testing.T) {
	hang, resume := make(chan struct{}), make(chan struct{})
	r := start(t, "", func(r *rig) {
		r.onTurn = func() int {
			select {
			case <-hang:
				hangHere(resume)
			default:
			}
			return 0
		}
	})
	require.True(t, r.d.Healthy())
	begin := time.Now()
	close(hang)
	r.log.await(t, 1, `level=ERROR msg="the Poller has not turned" port=cable queue=0 for=1[0-9]{2}\.`)
	require.Greater(t, time.Since(begin), 100*time.Millisecond)
	require.Contains(t, r.log.await(t, 1, `msg="where the Poller stands" port=cable queue=0`),
		"daemon.hangHere+0x")
	require.False(t, r.d.Healthy())
	require.NotZero(t, r.d.Pollers()[0].Still)
	require.EqualValues(t, 1, r.d.Pollers()[0].Stalls)
	close(resume)
	r.log.await(t, 1, `msg="the Poller turns again" port=cable queue=0`)
	require.True(t, r.d.Healthy())
	require.Zero(t, r.d.Pollers()[0].Still)
}

// fake is a Poller.
type fake struct {
	turns  uint64
	asleep bool
}

func (f *fake) Turns() uint64 { return f.turns }
func (f *fake) Asleep() bool  { return f.asleep }

// A Poller that turns, or sleeps until its device interrupts, is not reported, nor one that stood
// still only before late looks; one that hangs again soon is counted and not reported.
func TestWatchdogLooks(t *testing.T) {
	d := newWatchdog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	d.limit.Store(int64(100 * time.Millisecond))
	p := &fake{}
	d.add("one", "tap0", 0, p)
	reports, now := 0, time.Now()
	pass := func(looks int, every time.Duration, turn bool) {
		for range looks {
			now = now.Add(every)
			if turn {
				p.turns++
			}
			d.look(now, func(*watched) { reports++ })
		}
	}
	pass(100, lookEveryMax, true)
	p.asleep = true
	pass(100, lookEveryMax, false)
	p.asleep = false
	pass(4, lookEveryMax, false)
	require.Zero(t, reports)
	pass(100, time.Second, false) // the machine had no time for us either
	require.Zero(t, reports)
	pass(1, lookEveryMax, true)
	for range 4 { // on such a machine a Poller that hangs is noticed, too
		require.Zero(t, reports)
		pass(1, lookEveryMax, false)
		pass(1, time.Second, false)
	}
	pass(1, lookEveryMax, false)
	require.Equal(t, 1, reports)
	pass(1, lookEveryMax, true)
	pass(20, lookEveryMax, false)
	require.Equal(t, 1, reports)
	require.EqualValues(t, 2, d.status()[0].Stalls)
	pass(1, lookEveryMax, true)
	now = now.Add(reportEvery)
	pass(1, lookEveryMax, true)
	pass(20, lookEveryMax, false)
	require.Equal(t, 2, reports)
}

// Whatever the limit, a standstill is noticed in time by looks that come a little late, as timers
// do.
func TestWatchdogNoticesWithEveryLimit(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, limit := range []time.Duration{50, 51, 77, 100, 101, 1000, 3_600_000} {
		limit *= time.Millisecond
		d := newWatchdog(slog.New(slog.NewTextHandler(io.Discard, nil)))
		d.limit.Store(int64(limit))
		p := &fake{}
		d.add("one", "tap0", 0, p)
		begin, every := time.Now(), d.lookEvery()
		looks := 0
		look := func() time.Time {
			looks++
			late := time.Duration(rng.Int64N(int64(every)))
			at := begin.Add(time.Duration(looks)*every + late)
			d.look(at, func(*watched) {})
			return at
		}
		stood := begin
		for range 100 {
			p.turns++
			stood = look()
		}
		require.True(t, d.healthy(), limit)
		for d.healthy() {
			require.LessOrEqual(t, look().Sub(stood), limit+2*every, "limit %v", limit)
		}
	}
}

// The watchdog looks as often as its limit wants, also when a reload has changed it.
func TestWatchdogFollowsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatchdog(slog.New(slog.NewTextHandler(io.Discard, nil)))
		d.limit.Store(int64(time.Second))
		d.add("one", "tap0", 0, &fake{})
		d.start()
		defer d.stop()
		<-time.After(26 * time.Millisecond) // the Poller stands since 25 ms
		d.limit.Store(int64(50 * time.Millisecond))
		<-time.After(61 * time.Millisecond) // looks at 50, 62.5 and 75 ms
		require.True(t, d.healthy())
		<-time.After(time.Millisecond) // and at 87.5 ms
		require.False(t, d.healthy())
	})
}

// Of a profile the goroutine with the label is taken, and no other.
func TestStackOf(t *testing.T) {
	const profile = `goroutine profile: total 2
1 @ 0x1 0x2
# labels: {"rnicd_poller":"tap0#1"}
#	0x1	other.F+0x1	/other.go:1

1 @ 0x3 0x4
# labels: {"rnicd_poller":"tap0#0"}
#	0x3	stack.(*Poller).Turn+0x2f	/stack/poller.go:17
#	0x4	stack.(*Poller).Run+0x1	/stack/poller.go:1
`
	require.Equal(t, "stack.(*Poller).Turn+0x2f /stack/poller.go:17; stack.(*Poller).Run+0x1 "+
		"/stack/poller.go:1", stackOf(profile, "tap0#0"))
	require.Equal(t, "its goroutine is not there", stackOf(profile, "tap1#0"))
}

// Lines that peers can bring about are bounded, and what was left out is counted.
func TestRation(t *testing.T) {
	var r Ration
	now := time.Now()
	for range rationMax {
		_, ok := r.take(now)
		require.True(t, ok)
	}
	for range 5 {
		_, ok := r.take(now.Add(rationEvery - 1))
		require.False(t, ok)
	}
	left, ok := r.take(now.Add(rationEvery))
	require.True(t, ok)
	require.EqualValues(t, 5, left)
}
