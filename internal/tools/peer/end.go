// Package peer has what the protocols of rnicd's tools share about their peers: how a connection
// ended, refusals, the limit of clients, and clients that are silent for too long.
package peer

import (
	"context"
	"errors"

	"github.com/rnicd/rnicd/rnic"
)

// Next waits for the next completion of a queue, successful or not, and returns it. Or ctx's error.
func Next(ctx context.Context, cq *rnic.CompletionQueue) (rnic.Completion, error) {
	var c [1]rnic.Completion
	for cq.Poll(c[:]) == 0 {
		if err := cq.Wait(ctx); err != nil {
			return c[0], err
		}
	}
	return c[0], nil
}

// Over waits for the end of a connection that is about to come, and returns the reason that it has;
// ended where it was closed in order. Or ctx's error.
func Over(ctx context.Context, qp *rnic.QueuePair, ended error) error {
	select {
	case <-qp.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := qp.Err(); err != nil {
		return err
	}
	return ended
}

// Reason prefers the reason of a connection that has ended, or is being ended for an error, over
// what its end did to a request. That we closed it ourselves is none. It waits for an end that is
// on its way: 3 s at most.
func Reason(qp *rnic.QueuePair, err error) error {
	switch qp.State() {
	case rnic.Terminating, rnic.Error, rnic.Closed:
		<-qp.Done()
	}
	if cause := qp.Err(); cause != nil && !errors.Is(cause, rnic.ErrClosed) {
		return cause
	}
	return err
}

// Release ends a connection if it has not ended, and takes its memory back. Each may be nil.
func Release(qp *rnic.QueuePair, regions ...*rnic.MemoryRegion) {
	if qp != nil {
		if qp.State() != rnic.Closed {
			qp.Abort()
		}
		<-qp.Done()
	}
	for _, m := range regions {
		if m != nil {
			m.Deregister()
		}
	}
}
