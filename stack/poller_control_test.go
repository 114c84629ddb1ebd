package stack

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubmitRunsInOrderAndIsBounded(t *testing.T) {
	l := newLab(t, nil)
	var got []int
	for i := range controlRingEntries {
		require.NoError(t, l.a.Submit(func() { got = append(got, i) }))
	}
	require.ErrorIs(t, l.a.Submit(func() {}), ErrBusy)
	require.Positive(t, l.a.Turn())
	require.Len(t, got, controlRingEntries)
	for i := range got {
		require.Equal(t, i, got[i])
	}
	require.NoError(t, l.a.Submit(func() {}))
}

func TestSubmitThatSubmitsDoesNotHoldTheTurn(t *testing.T) {
	l := newLab(t, nil)
	n := 0
	var again func()
	again = func() {
		n++
		require.NoError(t, l.a.Submit(again))
	}
	require.NoError(t, l.a.Submit(again))
	l.a.Turn()
	require.LessOrEqual(t, n, controlRingEntries)
	*l.live = nil // it never ends
}

// What Submit took is run, always, and once: also what comes while the Poller ends.
func TestSubmitRunsWhatItTook(t *testing.T) {
	const rounds, callers = 20, 3
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for round := range rounds {
		l := newLab(t, func(i int, cfg *Config) { cfg.Clock = nil })
		var taken, run atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					err := l.a.Submit(func() { run.Add(1) })
					if errors.Is(err, ErrStopped) {
						return
					}
					if err == nil {
						taken.Add(1)
					}
				}
			})
		}
		all.Go(func() { _ = l.a.Run(ctx) })
		for taken.Load() < int64(round*10) && ctx.Err() == nil {
			runtime.Gosched()
		}
		l.a.Stop()
		all.Wait()
		<-l.a.Done()
		require.NoError(t, ctx.Err())
		require.Equal(t, taken.Load(), run.Load(), "round %d", round)
	}
}

// A Submit that looked before Stop, and pushes after the Poller's last look, runs the function
// itself.
func TestSubmitAfterTheLastLook(t *testing.T) {
	l := newLab(t, nil)
	l.stop()
	<-l.a.Done()
	l.a.control.stopping.Store(false) // as it was when this Submit looked
	ran := 0
	require.NoError(t, l.a.Submit(func() {
		ran++
		require.ErrorIs(t, errOf(l.a.Dial(netip.AddrPortFrom(l.b.addr, 7), newPeer(t, 1))), ErrStopped)
	}))
	require.Equal(t, 1, ran)
}

func TestWakeIsCoalesced(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	for range 10_000 {
		u.conn.Wake()
	}
	l.turns()
	require.Equal(t, 1, u.woken)
	u.conn.Wake()
	l.turns()
	require.Equal(t, 2, u.woken)
}

// What is posted while Woken is at work, after what it has looked at, rings again.
func TestWakeDuringWoken(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	u.onWoken = func() {
		if u.woken == 1 {
			u.conn.Wake()
		}
	}
	u.conn.Wake()
	l.turns()
	require.Equal(t, 2, u.woken)
}

func TestWakeWhileDialingComesAfterEstablished(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	u := l.dial(l.a, l.b, 7)
	u.conn.Wake() // Woken fails the test when it comes first
	l.until("woken", func() bool { return u.woken == 1 })
	require.True(t, u.opened)
}

func TestWakeOfAClosedConnIsHarmless(t *testing.T) {
	l, u, v := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 1 }).opened()
	u.conn.Abort()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
	u.conn.Wake()
	l.turns()
	require.Zero(t, u.woken)
	w := l.dial(l.a, l.b, 7) // the same slot
	require.Same(t, u.conn, w.conn)
	u.conn.Wake()
	l.until("open", func() bool { return w.opened })
	l.turns()
	require.Equal(t, 1, w.woken, "a Woken too many at most")
}

func TestRunSaysWhyItCannotStart(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.Core = 999 })
	err := l.a.Run(context.Background())
	require.ErrorContains(t, err, `stack: poller "host0": core 999 is not available; allowed CPUs: `)
	l.a.cfg.Core = -1
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, l.a.Run(ctx))
	require.ErrorContains(t, l.a.Run(ctx), "Run was called before")
}

func TestCountersWaitNoLongerThanAsked(t *testing.T) {
	l := newLab(t, nil) // nobody turns
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, errOf(l.a.Counters(ctx)), context.Canceled)
}
