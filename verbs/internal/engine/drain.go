package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
)

// drain is the state SQD of a queue pair that is connected by number: requests that were begun
// complete, and no more are taken from the program's ring. A mark is posted after them, an empty
// Write whose completion says that they have.
//
//	      PauseQP            Sends            its completion
//	off ----------> asked ----------> marked ----------------> over
//	 ^                |                 |  the end of the        |
//	 |                +-----------------+--connection----------->|
//	 +------------------------- PauseQP, ResetQP ----------------+
type drain struct {
	state atomic.Uint32 // one of drainOff and those after it

	mu     sync.Mutex
	era    uint64 // of pauses: a mark of an earlier one says nothing
	notify bool
	over   func(notify bool) // tells the program of the end
}

const (
	drainOff = iota
	drainAsked
	drainMarked
	drainOver
)

// drainMark is set in the ID of a mark. Those of the program's requests have 32 bits.
const drainMark = 1 << 63

func (d *drain) on() bool { return d.state.Load() != drainOff }

// asked says whether a mark is to be posted.
func (d *drain) asked() bool { return d.state.Load() == drainAsked }

// mark posts one. Without room for it that is done later.
func (d *drain) mark(f rnic.Feed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := f.Room()
	r.WQE = wq.WQE{ID: drainMark | d.era, Op: wq.OpWrite, Flags: wq.FlagSignaled}
	if d.asked() && f.SendEntry() == nil {
		d.state.Store(drainMarked)
	}
}

// marked says whether c is a mark's.
func (d *drain) marked(c *rnic.Completion) bool {
	if c.ID&drainMark == 0 {
		return false
	}
	if c.Status == rnic.Success {
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.ID == drainMark|d.era {
			d.end()
		}
	}
	return true
}

// done is called when nothing is under way any more.
func (d *drain) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end()
}

// end tells the program, where that waits for it. d is locked.
func (d *drain) end() {
	if s := d.state.Load(); s == drainAsked || s == drainMarked {
		d.state.Store(drainOver)
		d.over(d.notify)
	}
}

// begin begins; notify: the program wants an event.
func (d *drain) begin(notify bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.era++
	d.notify = notify
	d.state.Store(drainAsked)
}

// off has requests taken again.
func (d *drain) off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state.Store(drainOff)
}

// pauseQP is the move to SQD, and back to RTS.
func (e *Engine) pauseQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if !e.roce || q.rnic.Load() != nil {
		return syscall.EINVAL
	}
	if c.arg[1] != 0 {
		q.way.pause(c.arg[2] != 0)
	} else {
		q.drain.off()
		q.doorbell()
	}
	return nil
}

// pause returns when no request that is posted from then on is taken. Where there is no connection
// none was begun, except of one that is lost.
func (w *way) pause(notify bool) {
	w.mu.Lock()
	atomic.StoreUint32(&w.q.sends.shared.Drained, 0)
	w.q.drain.begin(notify)
	unfinished := w.unfinished()
	if !unfinished {
		w.stopTimer() // nor is any to be answered
	}
	l := w.current.Load()
	w.mu.Unlock()
	if unfinished {
		return
	}
	if l == nil {
		w.q.drain.done()
		return
	}
	_, _ = l.rnic.Stats(context.Background()) // the goroutine that takes requests has seen it
	l.rnic.Doorbell()
}

// drained tells the program.
func (q *qp) drained(notify bool) {
	atomic.StoreUint32(&q.sends.shared.Drained, 1)
	if notify {
		q.ctx.tell(eventSQDrained, &q.subject)
	}
}
