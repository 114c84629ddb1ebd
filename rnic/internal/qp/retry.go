package qp

import (
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// CanAcknowledge says whether the connection's version of RDMAP has acknowledged mode.
func CanAcknowledge(t *mpa.Terms) bool { return t.Version == rdmap.Extensions }

// retry is what Engine.SetRetry has set.
type retry struct {
	code atomic.Uint32 // of rdmap.RNRTime, plus 1; 0: rnrDefault
	max  atomic.Int64  // the NotReady in a row that fails the request; 0: none does
	ns   atomic.Int64  // Unanswered; 0: for ever
}

// Retry is what an engine in acknowledged mode does where a receiver is not ready, or nothing
// comes back.
type Retry struct {
	Wait       time.Duration // as receiver: how long the peer is told to wait
	Tries      int           // how often a message is sent again; below 0: as often as it takes
	Unanswered time.Duration // how long requests may be unanswered; 0: for ever
}

// rnrDefault is the code of a time that is long for a wire and short for a program.
const rnrDefault = 12

// SetRetry sets what applies from now on. Any goroutine, in any state.
func (q *Engine) SetRetry(r *Retry) {
	q.retry.code.Store(1 + uint32(rdmap.RNRCode(r.Wait)))
	q.retry.max.Store(max(0, 1+int64(r.Tries)))
	q.retry.ns.Store(max(0, int64(r.Unanswered)))
}

func (r *retry) timer() uint8 {
	if code := r.code.Load(); code > 0 {
		return uint8(code - 1)
	}
	return rnrDefault
}

// exhausted says whether so many NotReady messages in a row are too many.
func (r *retry) exhausted(tries int64) bool { m := r.max.Load(); return m > 0 && tries >= m }

// NotReadyTime is how long the peer wants to be left alone (EffectNotReady).
func (q *Engine) NotReadyTime() time.Duration { return rdmap.RNRTime(q.ack.wait) }

// Unanswered is how long requests may be unanswered; 0: for ever.
func (q *Engine) Unanswered() time.Duration { return time.Duration(q.retry.ns.Load()) }

// PeerLost tells, before Finish, that the connection has ended and this end did not want that. In
// acknowledged mode the oldest request, or if there is none the next to be posted, completes with
// RetryExceeded then.
func (q *Engine) PeerLost() { q.lost = q.service != nil && q.ack.on }

// flushStatus is the status of the next request of the send queue to be flushed.
func (q *Engine) flushStatus() wq.Status {
	if q.lost {
		q.lost = false
		return wq.RetryExceeded
	}
	return wq.Flushed
}

// OnTheirWay says whether requests were sent that have not completed.
func (q *Engine) OnTheirWay() bool { return q.ack.on && q.requester.sent.count > 0 }
