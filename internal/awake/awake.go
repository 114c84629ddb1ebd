// Package awake has time limits of which only the time counts in which this process runs. Time in
// which it is stopped (SIGSTOP, a frozen cgroup, a paused virtual machine) or gets no processor is
// left out: what a peer has sent meanwhile waits in a device or a socket, and a limit of the wall
// clock would end before it is read.
//
// A limit is a row of steps, each with a timer. A pause makes a step late, and a late step is done
// once more. So after a pause longer than a step (and lateMin) a whole step is left at least, in
// which what waits is read, and a peer that was paused, too, can answer. A shorter pause takes no
// more than itself from the limit.
package awake

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	stepsMax = 16
	stepMin  = 10 * time.Millisecond // of a limit of several steps
	lateMin  = time.Millisecond      // a timer that comes so late says nothing of a pause
	// nor if it comes later by so small a part of its step, except the last
	lateDiv = 4
)

// Timer is a limit that may be stopped. Any goroutine.
type Timer struct {
	over func()
	step time.Duration

	mu    sync.Mutex
	timer *time.Timer
	due   time.Time // when this step ends
	left  int       // steps, this one too; 0: over, or stopped
	// late steps that may be done once more: a process that always comes late has twice the limit
	late int
}

// AfterFunc calls over in a goroutine of its own when limit is over, unless Stop comes before.
func AfterFunc(limit time.Duration, over func()) *Timer {
	n := min(max(limit/stepMin, 1), stepsMax)
	t := &Timer{over: over, step: limit / n, left: int(n), late: int(n)}
	if limit%n != 0 {
		t.step++
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = time.Now().Add(t.step)
	t.timer = time.AfterFunc(t.step, t.next)
	return t
}

// next ends a step.
func (t *Timer) next() {
	if t.goesOn() {
		return
	}
	t.over()
}

// goesOn begins the next step. False: it was the last one.
func (t *Timer) goesOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 {
		return true // stopped while this step ended
	}
	now := time.Now()
	most := lateMin
	if t.left > 1 { // another step is left anyway
		most = max(t.step/lateDiv, lateMin)
	}
	if t.late > 0 && now.Sub(t.due) > most {
		t.late--
	} else {
		t.left--
	}
	if t.left == 0 {
		return false
	}
	t.due = now.Add(t.step)
	t.timer.Reset(t.step)
	return true
}

// Stop ends the limit. False: it is over, and its function has been called or will be at once; or
// it was stopped before.
func (t *Timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.left
	t.left = 0
	t.timer.Stop()
	return was > 0
}

// After closes over when limit is over. stop lets go of it.
func After(limit time.Duration) (over <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	t := AfterFunc(limit, func() { close(ch) })
	return ch, func() { t.Stop() }
}

// Deadline calls set, a connection's SetReadDeadline or the like, with a time that has passed when
// limit is over. A deadline that is there ends the connection's calls until then, too.
func Deadline(limit time.Duration, set func(time.Time) error) *Timer {
	// a connection that is closed has ended its calls
	return AfterFunc(limit, func() { _ = set(time.Unix(1, 0)) })
}

// Timeout is context.WithTimeoutCause with such a limit; without a cause that is
// context.DeadlineExceeded, as is the context's error. The context's Deadline is only ctx's.
func Timeout(ctx context.Context, limit time.Duration,
	cause error) (context.Context, context.CancelFunc) {
	inner, end := context.WithCancelCause(ctx)
	c := &limited{Context: inner, done: make(chan struct{})}
	var over atomic.Bool
	t := AfterFunc(limit, func() {
		over.Store(true)
		end(cmp.Or(cause, context.DeadlineExceeded))
	})
	context.AfterFunc(inner, func() {
		if c.err = inner.Err(); over.Load() {
			c.err = context.DeadlineExceeded
		}
		t.Stop() // ctx may have ended
		close(c.done)
	})
	return c, func() { end(context.Canceled) }
}

// limited is a context with another error. Its channel is another, too: contexts that are made of
// it would else take over the error of the inner one.
type limited struct {
	context.Context
	done chan struct{}
	err  error // when done is closed
}

func (c *limited) Done() <-chan struct{} { return c.done }

// Err is never nil after cancel has returned or a parent has ended: it waits for done, which is
// about to be closed then.
func (c *limited) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	<-c.done
	return c.err
}
