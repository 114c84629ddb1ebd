package rnic

import (
	"context"
	"runtime"

	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// Notification says which completions Arm and Ready are about.
type Notification uint32

const (
	// NextSolicited: those that the peer asked an event for (Completion.Solicited), and those that
	// are no success.
	NextSolicited Notification = Notification(qp.ArmedSolicited)
	// NextCompletion: any.
	NextCompletion Notification = Notification(qp.ArmedAny)
)

// Arm requests one value in Ready for the next completion that matches n. If there is any
// completion to poll, the value is there at once: a caller that polls until the queue is empty,
// arms and then waits for Ready misses none.
//
//	for {
//		for n := cq.Poll(cs[:]); n > 0; n = cq.Poll(cs[:]) { ... }
//		cq.Arm(rnic.NextSolicited)
//		select {
//		case <-cq.Ready():
//		case <-somethingElse:
//		}
//	}
//
// It may be called again before the value came: NextCompletion includes NextSolicited, and a
// request stays until it is answered. It does not block. Only the goroutine that polls.
func (q *CompletionQueue) Arm(n Notification) {
	q.q.Arm(uint32(n))
	q.adapter.StopProgress()
}

// Ready has a value after Arm. It may have one although there is no completion: poll, and arm
// again. Any goroutine; Wait takes values from it, too.
func (q *CompletionQueue) Ready() <-chan struct{} { return q.q.Ready() }

// Wait returns when there is something to poll or ctx ends. The goroutine that polls, which must
// not be a Poller's. A completion that arrives between an empty Poll and Wait is not missed. The
// error is ctx.Err(). The end of a QueuePair is no error here: its work completes as Flushed.
func (q *CompletionQueue) Wait(ctx context.Context) error {
	for !q.q.Waits() {
		if q.adapter.Progress() {
			continue
		}
		if err := q.sleep(ctx, NextCompletion); err != nil {
			return err
		}
	}
	return nil
}

// WaitSolicited returns when there is something to poll already; otherwise it lets completions
// gather until one comes that matches NextSolicited, or ctx ends. A peer that sets
// WorkRequest.Solicited on the last of several Sends wakes this end once. RecvCQ must have room for
// what gathers. The same goroutine as Wait.
func (q *CompletionQueue) WaitSolicited(ctx context.Context) error {
	for !q.q.Waits() {
		if err := q.sleep(ctx, NextSolicited); err != nil {
			return err
		}
	}
	return nil
}

// sleep returns when Ready has a value, or ctx ends.
func (q *CompletionQueue) sleep(ctx context.Context, n Notification) error {
	q.Arm(n)
	select {
	case <-q.q.Ready():
		if !q.q.Waits() {
			runtime.Gosched() // its producer may be filling it in
		}
		return nil
	case <-ctx.Done():
		q.q.Disarm()
		return ctx.Err()
	}
}
