package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// run is one Run or Serve.
type run struct {
	*End
	Test
	ctx   context.Context
	start time.Time

	sent, recvd uint64 // completed
	base        uint64 // of sent, when this lot of messages was begun
	posted      uint64 // of this lot
	returned    uint64 // receive buffers that were posted again
	final       bool   // the peer has sent its last message
	timeOver    bool   // Duration has passed
	credits     credits

	idles   int       // in a row
	since   time.Time // the first of them that was timed
	spinFor time.Duration
	got     [64]rnic.Completion
}

// Work request ids of the send queue. What a handshake has posted itself and is completed
// meanwhile has any other.
const (
	idMessage = 1<<40 + iota
	idCredit
)

// errFinished: the peer has sent a Send with Solicited Event.
var errFinished = errors.New("perf: the peer is done")

func newRun(ctx context.Context, e *End, t Test) *run {
	r := &run{End: e, Test: t, ctx: ctx, start: time.Now(), spinFor: spinPoller}
	if e.Credit != nil {
		atomic.StoreUint32(r.word(e.Credit.Local), 0) // what the last test has left
	}
	if st, err := e.QP.Stats(ctx); err == nil && st.TCP.Kernel {
		r.spinFor = spinSockets
	}
	return r
}

// now is in nanoseconds since the start.
func (r *run) now() int64 { return int64(time.Since(r.start)) }

// post posts message i of the measured kind.
func (r *run) post() error {
	wr := rnic.WorkRequest{ID: idMessage, Signaled: true, RemoteSTag: r.RemoteSTag,
		RemoteOffset: r.RemoteOffset}
	switch r.Op {
	case Write:
		wr.Op, wr.Local = rnic.OpWrite, r.Local.Slice(r.SendAt, r.Size)
	case Read:
		wr.Op, wr.Local = rnic.OpRead, r.Local.Slice(r.RecvAt, r.Size)
	case Send:
		wr.Op, wr.Local = rnic.OpSend, r.Local.Slice(r.SendAt, r.Size)
	default:
		wr.Op, wr.Add = rnic.OpFetchAdd, 1
	}
	_, err := r.QP.PostSend(wr)
	return err
}

func (r *run) postRecv() error {
	_, err := r.QP.PostRecv(rnic.WorkRequest{Local: r.Local.Slice(r.RecvAt, r.Size)})
	return err
}

// poll takes what has completed, and says whether there was something.
func (r *run) poll() (bool, error) {
	n := r.SendCQ.Poll(r.got[:])
	if err := r.taken(r.got[:n]); err != nil {
		return false, err
	}
	if r.RecvCQ == r.SendCQ {
		return n > 0, nil
	}
	m := r.RecvCQ.Poll(r.got[:])
	return n+m > 0, r.taken(r.got[:m])
}

func (r *run) taken(got []rnic.Completion) error {
	for i := range got {
		c := &got[i]
		if c.Status != rnic.Success {
			return r.broken(c)
		}
		switch {
		case c.Op == rnic.OpRecv && c.Solicited:
			r.final = true
		case c.Op == rnic.OpRecv:
			r.recvd++
		case c.ID == idMessage:
			r.sent++
		case c.ID == idCredit:
			r.credits.busy = false
		}
	}
	return nil
}

// broken says why a request failed: for the reason that the connection has, if it has one.
func (r *run) broken(c *rnic.Completion) error {
	if c.Status == rnic.Flushed {
		return r.ended()
	}
	return fmt.Errorf("perf: %v: %v", c.Op, c.Status)
}

// ended is how the connection ended, which it is about to.
func (r *run) ended() error { return peer.Over(r.ctx, r.QP, ErrEnded) }

// How a fruitless poll is repeated: without a pause at first, because an end that sleeps measures
// its own waking up; other goroutines are let in often, for one may be the Poller that this one
// waits for. When nothing has moved for some time, somebody else needs the core for something to
// move: over kernel sockets soon, because it is goroutines of this process that read them; beside a
// Poller, which polls itself, late.
const (
	yieldEvery  = 4
	lookEvery   = 64
	spinPoller  = 2 * time.Millisecond
	spinSockets = 10 * time.Microsecond
	napping     = 20 * time.Microsecond
)

// rest is called after each look.
func (r *run) rest(moved bool) error {
	if moved {
		r.idles = 0
		return nil
	}
	return r.idle()
}

// idle is called after each look that found nothing.
func (r *run) idle() error {
	r.idles++
	if r.idles%yieldEvery == 0 {
		runtime.Gosched()
	}
	if r.idles%lookEvery != 0 {
		return nil
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	select {
	case <-r.QP.Done():
		if moved, err := r.poll(); moved || err != nil { // what came before the end
			return err
		}
		return r.ended()
	default:
	}
	switch now := time.Now(); {
	case r.idles == lookEvery:
		r.since = now
	case now.Sub(r.since) > r.spinFor:
		time.Sleep(napping)
	}
	return nil
}

// await polls until done says so.
func (r *run) await(done func() bool) error {
	for {
		moved, err := r.poll()
		switch {
		case err != nil:
			return err
		case done():
			r.idles = 0
			return nil
		case moved:
			r.idles = 0
			continue
		}
		if err := r.idle(); err != nil {
			if done() { // the peer said its last and closed since the look above
				return nil
			}
			return err
		}
	}
}
