package perf

import (
	"errors"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// clockEvery is how often a test with a duration looks at the clock, in messages.
const clockEvery = 64

// bandwidth posts Warmup messages, then those that are measured, and completes each lot.
func (m *team) bandwidth() (Result, error) {
	if m.Warmup > 0 {
		if err := m.pump(m.Warmup, 0, m.Warmup, nil); err != nil {
			return Result{}, err
		}
	}
	var t *times
	count := m.Iterations
	if m.Duration > 0 {
		count = 0
	} else if count <= PeakMax && len(m.runs) == 1 {
		t = newTimes(count)
	}
	sent := func(r *run) uint64 { return r.sent }
	before, begin := m.sum(sent), m.now()
	if err := m.pump(count, m.Duration, m.Iterations+m.Warmup, t); err != nil {
		return Result{}, err
	}
	for _, r := range m.runs {
		if r.Flush != nil {
			if err := r.Flush(r.ctx); err != nil {
				return Result{}, err
			}
		}
	}
	elapsed := time.Duration(m.now() - begin)
	return bandwidthOf(&m.Test, m.sum(sent)-before, elapsed, t), nil
}

// pump posts count messages on every connection, or as many as there is time for, and returns when
// all have completed and, if the peer sends Sends, too, come have come on each since the beginning.
func (m *team) pump(count int, during time.Duration, come int, t *times) error {
	for _, r := range m.runs {
		r.base, r.posted = r.sent, 0
	}
	var until int64
	if during > 0 {
		until = m.now() + int64(during)
	}
	receives := m.Both && m.Op == Send
	// without a number it is not known how many: the peer has a clock of its own
	if !receives || during > 0 {
		come = 0
	}
	for {
		moved := false
		for _, r := range m.runs {
			posted, err := r.postMany(count, until, t)
			if err != nil {
				return err
			}
			moved = moved || posted
		}
		if m.all(func(r *run) bool { return r.drained(count, until, come) }) {
			return nil
		}
		before := m.runs[0].sent
		got, err := m.poll(receives)
		if err != nil {
			return err
		}
		t.complete(m.runs[0], int(m.runs[0].sent-before))
		if err := m.rest(moved || got); err != nil {
			return err
		}
	}
}

// wants says whether there is another message to post.
func (r *run) wants(count int, until int64) bool {
	if until == 0 {
		return r.posted < uint64(count)
	}
	if !r.timeOver && r.posted%clockEvery == 0 {
		r.timeOver = r.now() >= until
	}
	return !r.timeOver
}

// postMany posts what there is room for, and says whether it was any.
func (r *run) postMany(count int, until int64, t *times) (moved bool, err error) {
	for r.wants(count, until) && r.posted-(r.sent-r.base) < uint64(r.TxDepth) && r.mayPost() {
		t.post(r)
		if err := r.post(); err != nil {
			if busy(err) && r.posted > r.sent-r.base {
				t.unpost()
				return moved, nil
			}
			return moved, r.refused(err)
		}
		r.posted++
		r.credits.sent++
		moved = true
	}
	return moved, nil
}

// drained: nothing is to be posted, to complete or to come any more. A sender that waits for credit
// that does not come, because the other end's time is over, finds out here that its own is.
func (r *run) drained(count int, until int64, come int) bool {
	if r.sent-r.base != r.posted || r.recvd < uint64(come) || r.credits.busy {
		return false
	}
	r.timeOver = r.timeOver || until > 0 && r.now() >= until
	return !r.wants(count, until)
}

// busy: there is no room for a request now, and will be when others have completed.
func busy(err error) bool {
	return errors.Is(err, rnic.ErrSendQueueFull) || errors.Is(err, rnic.ErrCQFull)
}

// refused is a posting call's error, or how the connection ended if that is why.
func (r *run) refused(err error) error {
	if errors.Is(err, rnic.ErrClosed) || errors.Is(err, rnic.ErrState) {
		select {
		case <-r.QP.Done():
			return r.ended()
		default:
		}
	}
	return err
}

// take receives Sends, gives their buffers back and tells the sender of it.
func (m *team) take() error {
	total := uint64(m.Iterations + m.Warmup)
	if m.Iterations == 0 {
		total = 0
	}
	for {
		moved, err := m.poll(true)
		switch {
		case err != nil:
			return err
		case m.runs[0].final:
			return errFinished
		case total > 0 && m.all(func(r *run) bool { return r.recvd >= total && !r.credits.busy }):
			return nil
		}
		if err := m.rest(moved); err != nil {
			return err
		}
	}
}

// giveBack posts the buffers of what has come again, and tells the sender of it.
func (r *run) giveBack() error {
	for ; r.returned < r.recvd; r.returned++ {
		if err := r.postRecv(); err != nil {
			return r.refused(err)
		}
	}
	return r.grant()
}
