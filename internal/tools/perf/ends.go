package perf

import (
	"context"
	"errors"
	"time"
)

// Ends are those of one process in one Test: of several connections, in a bandwidth test, or of
// one. The same peer process is at the other end of all, and does the same Test. They may be used
// for one Test after the other.
type Ends struct {
	All []*End
	// Over, if set, is asked now and then, and says that the peer will send no more: Serve then
	// ends as if it had been told with a Send, and a Run that only waits for the peer does. For
	// Tests without Iterations.
	Over func() bool
	// Began is the earliest time at which the peer may have begun, for a latency test that is Alone:
	// the Duration counts from then, so that this end is through before the peer ends the connection.
	// Without it, from when Run is called.
	Began time.Time

	clock func() int64 // of tests: nanoseconds since Run or Serve was called
}

// Run measures, as End.Run does. With Test.Both the other end runs, too, and of Sends Run takes
// those of the peer's meanwhile. Figures are those of what this end has sent (or read), all
// connections together.
func (es Ends) Run(ctx context.Context, t Test) (Result, error) {
	if err := es.check(&t); err != nil {
		return Result{}, err
	}
	if t.Iterations == 0 && t.Duration == 0 {
		return Result{}, errors.New("perf: neither iterations nor a duration")
	}
	m := newTeam(ctx, es, t)
	switch r := m.runs[0]; {
	case !t.Latency:
		return m.bandwidth()
	case t.Op == Write || t.Op == Send:
		return r.pingPong()
	default:
		return r.roundTrips()
	}
}

// Serve is the other end, as End.Serve is.
func (es Ends) Serve(ctx context.Context, t Test) error {
	if err := es.check(&t); err != nil {
		return err
	}
	m := newTeam(ctx, es, t)
	var err error
	switch {
	case t.Latency && (t.Op == Write || t.Op == Send):
		err = m.runs[0].pongs()
	case t.Op == Send:
		err = m.take()
	default:
		return nil
	}
	if errors.Is(err, errFinished) || errors.Is(err, ErrEnded) && t.Iterations == 0 {
		return nil
	}
	return err
}

func (es Ends) check(t *Test) error {
	if len(es.All) == 0 || t.Latency && len(es.All) > 1 {
		return errors.New("perf: a test has at least one connection, of latency only one")
	}
	if err := t.check(); err != nil {
		return err
	}
	for _, e := range es.All {
		if err := e.check(t); err != nil {
			return err
		}
	}
	return nil
}

// team is one Run or Serve.
type team struct {
	Test
	runs []*run
	now  func() int64 // nanoseconds since the start
}

func newTeam(ctx context.Context, es Ends, t Test) *team {
	start := time.Now()
	m := &team{Test: t, now: es.clock}
	if m.now == nil {
		m.now = func() int64 { return int64(time.Since(start)) }
	}
	for _, e := range es.All {
		r := newRun(ctx, e, t)
		r.now, r.over = m.now, es.Over
		if !es.Began.IsZero() {
			r.began = int64(es.Began.Sub(start))
		}
		m.runs = append(m.runs, r)
	}
	return m
}

// sum adds up over all connections.
func (m *team) sum(of func(*run) uint64) (n uint64) {
	for _, r := range m.runs {
		n += of(r)
	}
	return n
}

// all says whether something is so of every connection.
func (m *team) all(so func(*run) bool) bool {
	for _, r := range m.runs {
		if !so(r) {
			return false
		}
	}
	return true
}

// poll takes what has completed on any connection, and does what a receiver does with it.
func (m *team) poll(receives bool) (moved bool, err error) {
	for _, r := range m.runs {
		got, err := r.poll()
		if err == nil && receives {
			err = r.giveBack()
		}
		if err != nil {
			return false, err
		}
		moved = moved || got
	}
	return moved, nil
}

// rest is called after each poll of all connections.
func (m *team) rest(moved bool) error {
	if moved {
		for _, r := range m.runs {
			r.idles = 0
		}
		return nil
	}
	for _, r := range m.runs {
		if err := r.idle(); err != nil {
			return err
		}
	}
	return nil
}
