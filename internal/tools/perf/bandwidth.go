package perf

import (
	"errors"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// clockEvery is how often a test with a duration looks at the clock, in messages.
const clockEvery = 64

// bandwidth posts Warmup messages, then those that are measured, and completes each lot.
func (r *run) bandwidth() (Result, error) {
	if r.Warmup > 0 {
		if err := r.pump(r.Warmup, 0, nil); err != nil {
			return Result{}, err
		}
	}
	var t *times
	count := r.Iterations
	if r.Duration > 0 {
		count = 0
	} else if count <= PeakMax {
		t = newTimes(count)
	}
	before, begin := r.sent, r.now()
	if err := r.pump(count, r.Duration, t); err != nil {
		return Result{}, err
	}
	if r.Flush != nil {
		if err := r.Flush(r.ctx); err != nil {
			return Result{}, err
		}
	}
	elapsed := time.Duration(r.now() - begin)
	return bandwidthOf(&r.Test, r.sent-before, elapsed, t), nil
}

// pump posts count messages, or as many as there is time for, and returns when all have completed.
func (r *run) pump(count int, during time.Duration, t *times) error {
	r.base, r.posted = r.sent, 0
	var until int64
	if during > 0 {
		until = r.now() + int64(during)
	}
	for {
		posted, err := r.postMany(count, until, t)
		if err != nil {
			return err
		}
		if r.sent-r.base == r.posted && !r.wants(count, until) {
			return nil
		}
		before := r.sent
		got, err := r.poll()
		if err != nil {
			return err
		}
		t.complete(r, int(r.sent-before))
		if err := r.rest(posted || got); err != nil {
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
func (r *run) take() error {
	total := uint64(r.Iterations + r.Warmup)
	for {
		moved, err := r.poll()
		if err == nil {
			err = r.giveBack()
		}
		switch {
		case err != nil:
			return err
		case r.final:
			return errFinished
		case r.Iterations > 0 && r.recvd >= total && !r.credits.busy:
			return nil
		}
		if err := r.rest(moved); err != nil {
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
