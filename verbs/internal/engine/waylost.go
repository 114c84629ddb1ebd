package engine

import (
	"errors"
	"slices"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
)

// How a way ends without an answer: its Request has none, or the peer is gone. An HCA hears nothing
// of its peer's end. It repeats what is unanswered, and a program that leaves meanwhile, as many do
// at the end of a conversation, is told of no error. So what the peer has left unanswered is held.

// hold keeps the completion of a request that the peer has left unanswered. False: there is no need
// to wait, for the program has been told of the end or has asked for it. Goroutine that drives the
// connection.
func (w *way) hold(c *rnic.Completion) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed.Load() {
		return false
	}
	w.held = append(w.held, *c)
	if w.state == wayLost { // by another life
		w.awaitLost()
	}
	return true
}

// lifeOver is called when a life has ended, and why. One that was in service when this end did not
// know it yet is told by what it has completed, or by an error of its messages.
func (w *way) lifeOver(l *life, err error) {
	kind, event := eventOf(err)
	w.mu.Lock()
	was := slices.Index(w.lives, l)
	if was >= 0 {
		w.lives = slices.Delete(w.lives, was, was+1)
	}
	served := w.state == wayServed && (w.current.Load() == l || !l.sends)
	if was < 0 || !served && !(w.state == waySeeking && (l.worked || aboutMessages(err))) {
		w.mu.Unlock()
		return
	}
	w.current.Store(nil)
	if event = event && !w.failed.Load(); event {
		w.failed.Store(true)
	}
	w.state = wayLost
	w.stopTimer()
	over := w.failed.Load() || errors.Is(err, rnic.ErrNoAnswer)
	waits := w.unfinished() || w.q.requestWaits()
	switch {
	case over:
		w.state = wayOver
	case waits:
		w.awaitLost()
	}
	era, peer := w.era, w.peer
	w.mu.Unlock()
	w.q.engine.tellEnd(err, "ended, 0x%06x with %v: %s", w.q.number, peer, why(err))
	if event {
		w.q.ctx.tell(kind, &w.q.subject)
	}
	if over {
		w.end(era, 0)
	} else if !waits {
		w.q.drain.done() // if it was to be: nothing is under way any more
	}
}

// unfinished says whether one that is lost has left requests that were begun. w is locked.
func (w *way) unfinished() bool {
	return w.state == wayLost && (len(w.held) > 0 || w.q.begun())
}

// awaitLost begins the time that a request has although the peer is gone. w is locked.
func (w *way) awaitLost() {
	if era := w.era; w.timer == nil {
		w.timer = awake.AfterFunc(unansweredMin, func() { w.unanswered(era) })
	}
}

// stopTimer has nobody lose patience. w is locked.
func (w *way) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// unanswered is the end of patience.
func (w *way) unanswered(era uint32) {
	w.mu.Lock()
	waits := (w.state == waySeeking || w.state == wayLost) && w.era == era
	peer := w.peer
	w.mu.Unlock()
	if waits {
		w.q.engine.tellLog("queue pair 0x%06x to %v: no answer", w.q.number, peer)
		w.end(era, 0)
	}
}

// flush completes everything that waits. Any goroutine, after all lives.
func (w *way) flush() {
	w.flushing.Lock()
	defer w.flushing.Unlock()
	q := w.q
	r := &wq.Request{List: make([]wq.SGE, q.opt.SGEMax), Data: make([]byte, q.opt.InlineMax)}
	w.flushHeld()
	if len(q.rest) > 0 {
		w.flushSend(rnic.Completion{ID: q.rest[0].ID, Op: q.rest[0].Op})
		q.rest = nil
	}
	for n := q.sends.peek(r); n > 0; n = q.sends.peek(r) {
		q.sends.count(&q.underway)
		q.sends.taken(n)
		w.flushSend(rnic.Completion{ID: r.ID, Op: r.Op})
	}
	for _, id := range w.kept {
		q.received(rnic.Completion{ID: id, Op: rnic.OpRecv, Status: rnic.Flushed,
			Terminate: w.terminate.Load()})
	}
	w.kept = nil
	for n := q.recvs.peek(r); n > 0 && q.srq == nil; n = q.recvs.peek(r) {
		q.recvs.taken(n)
		q.received(rnic.Completion{ID: r.ID, Op: rnic.OpRecv, Status: rnic.Flushed,
			Terminate: w.terminate.Load()})
	}
}

// flushHeld completes what was held.
func (w *way) flushHeld() {
	w.mu.Lock()
	held := w.held
	w.held = nil
	w.mu.Unlock()
	for _, c := range held {
		w.flushSend(c)
	}
}

// flushSend completes a request that nobody has answered. The first since the peer is gone has been
// retried in vain; those after it, and what is posted from then on, are flushed.
func (w *way) flushSend(c rnic.Completion) {
	c.Status, c.Terminate = rnic.Flushed, w.terminate.Load()
	if !w.failed.Swap(true) {
		c.Status = rnic.RetryExceeded
	}
	w.q.sent(c)
}
