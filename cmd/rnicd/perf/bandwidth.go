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
	if err := r.pump(r.Warmup, 0, nil); err != nil {
		return Result{}, err
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
	base, posted := r.sent, uint64(0)
	more := func() bool { return posted < uint64(count) }
	if during > 0 {
		over, until := false, r.now()+int64(during)
		more = func() bool {
			if !over && posted%clockEvery == 0 {
				over = r.now() >= until
			}
			return !over
		}
	}
	for {
		wanted := more()
		if !wanted && r.sent-base == posted {
			r.idles = 0
			return nil
		}
		moved := false
		for ; wanted && posted-(r.sent-base) < uint64(r.TxDepth) && r.mayPost(); wanted = more() {
			t.post(r)
			if err := r.post(); err != nil {
				if busy(err) && posted > r.sent-base {
					t.unpost()
					break
				}
				return r.refused(err)
			}
			posted++
			r.credits.sent++
			moved = true
		}
		before := r.sent
		got, err := r.poll()
		if err != nil {
			return err
		}
		t.complete(r, int(r.sent-before))
		if moved || got {
			r.idles = 0
		} else if err := r.idle(); err != nil {
			return err
		}
	}
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
	total, posted := uint64(r.Iterations+r.Warmup), uint64(0)
	if r.Iterations == 0 {
		total = 0
	}
	for {
		moved, err := r.poll()
		if err != nil {
			return err
		}
		for ; posted < r.recvd; posted++ {
			if err := r.postRecv(); err != nil {
				return r.refused(err)
			}
		}
		switch {
		case r.final:
			return errFinished
		case total > 0 && r.recvd >= total:
			return nil
		}
		if err := r.grant(); err != nil {
			return err
		}
		if moved {
			r.idles = 0
		} else if err := r.idle(); err != nil {
			return err
		}
	}
}
