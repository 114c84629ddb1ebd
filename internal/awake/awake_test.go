package awake

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var limits = []time.Duration{0, 1, time.Millisecond, 32 * time.Millisecond, 250 * time.Millisecond,
	10*time.Second + 7, time.Hour}

// Without a pause a limit is over in time, rounded up to whole nanoseconds of a step.
func TestLimit(t *testing.T) {
	for _, limit := range limits {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			over, stop := After(limit)
			defer stop()
			<-over
			require.GreaterOrEqual(t, time.Since(begin), limit)
			require.Less(t, time.Since(begin), limit+stepsMax)
		})
	}
}

// stepBy is a process that is away for pause after each step, so that its timers come late.
func stepBy(t *Timer, pause time.Duration) {
	t.mu.Lock()
	t.due = t.due.Add(-pause)
	t.mu.Unlock()
}

// After a pause that ends beyond the limit, wherever it begins, a step is left.
func TestPause(t *testing.T) {
	const limit = 1600 * time.Millisecond
	for run := time.Duration(0); run < limit; run += 37 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			over := make(chan struct{})
			timer := AfterFunc(limit, func() { close(over) })
			<-time.After(run)
			stepBy(timer, 10*limit)
			begin := time.Now()
			<-over
			require.GreaterOrEqual(t, time.Since(begin), limit/stepsMax)
			require.LessOrEqual(t, run+time.Since(begin), limit+limit/stepsMax)
		})
	}
}

// A pause over the end of the last step leaves a step, however soon after it the pause ends.
func TestPauseOverTheLastStep(t *testing.T) {
	const limit, step = 1600 * time.Millisecond, 100 * time.Millisecond
	for late := lateMin + 1; late < step; late += 7 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			over := make(chan struct{})
			timer := AfterFunc(limit, func() { close(over) })
			<-time.After(limit - step + 1)
			stepBy(timer, late)
			<-time.After(step - 1)
			begin := time.Now()
			<-over
			require.Equal(t, step, time.Since(begin), late)
		})
	}
}

// The longest limit is not over at once.
func TestLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := AfterFunc(math.MaxInt64, func() { t.Error("over") })
		<-time.After(100 * 365 * 24 * time.Hour)
		require.True(t, timer.Stop())
	})
}

// When cancel, or a parent's, has returned, there is an error.
func TestErrAfterCancel(t *testing.T) {
	for i := range 1000 {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := Timeout(parent, time.Hour, nil)
		require.NoError(t, ctx.Err())
		if i%2 == 0 {
			end()
		} else {
			cancel()
		}
		require.Equal(t, context.Canceled, ctx.Err())
		<-ctx.Done()
		cancel()
		end()
	}
}

// A process that always comes late has twice the limit, and no more.
func TestAlwaysLate(t *testing.T) {
	for _, limit := range limits {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			over := make(chan struct{})
			timer := AfterFunc(limit, func() { close(over) })
			for {
				stepBy(timer, time.Hour)
				select {
				case <-over:
				case <-time.After(timer.step):
					synctest.Wait()
					continue
				}
				break
			}
			require.GreaterOrEqual(t, time.Since(begin), 2*limit)
			require.Less(t, time.Since(begin), 2*limit+2*stepsMax)
		})
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range limits[2:] {
			timer := AfterFunc(limit, func() { t.Error("stopped") })
			<-time.After(limit - 1)
			require.True(t, timer.Stop())
			require.False(t, timer.Stop())
			<-time.After(2 * limit)
		}
		called := 0
		timer := AfterFunc(time.Second, func() { called++ })
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.False(t, timer.Stop())
		require.Equal(t, 1, called)
	})
}

// A context ends as one of package context does, and with it those that are made of it.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("too long")
		for _, tc := range []struct {
			given, want error
		}{{nil, context.DeadlineExceeded}, {cause, cause}} {
			begin := time.Now()
			ctx, cancel := Timeout(t.Context(), time.Second, tc.given)
			child, cancelChild := context.WithCancel(ctx)
			require.NoError(t, ctx.Err())
			require.NoError(t, context.Cause(ctx))
			for _, c := range []context.Context{ctx, child} {
				<-c.Done()
				require.Equal(t, time.Second, time.Since(begin))
				require.Equal(t, context.DeadlineExceeded, c.Err())
				require.Equal(t, tc.want, context.Cause(c))
			}
			cancelChild()
			cancel()
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
		}
	})
}

// One that is not over ends by its own cancel, or with its parent, and for the parent's reason.
func TestTimeoutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		for _, own := range []bool{true, false} {
			parent, end := context.WithCancelCause(t.Context())
			ctx, cancel := Timeout(parent, time.Hour, nil)
			child, cancelChild := context.WithCancel(ctx)
			want := gone
			if own {
				want = context.Canceled
				cancel()
			} else {
				end(gone)
			}
			for _, c := range []context.Context{ctx, child} {
				<-c.Done()
				require.Equal(t, context.Canceled, c.Err())
				require.Equal(t, want, context.Cause(c))
			}
			cancelChild()
			cancel()
			end(nil)
		}
		late, cancelLate := context.WithTimeout(t.Context(), time.Second)
		defer cancelLate()
		ctx, cancel := Timeout(late, time.Hour, gone)
		defer cancel()
		at, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Second, time.Until(at))
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		require.Equal(t, context.DeadlineExceeded, context.Cause(ctx))
	})
}
