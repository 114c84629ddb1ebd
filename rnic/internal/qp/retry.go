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

// retry is what Engine.SetRetry has set last. nil: nothing yet. Few engines need it.
type retry struct{ set atomic.Pointer[Retry] }

// get is what applies.
func (r *retry) get() *Retry {
	if set := r.set.Load(); set != nil {
		return set
	}
	return &retryDefault
}

// retryDefault applies before SetRetry.
var retryDefault = Retry{Wait: rnrDefault, Tries: -1}

// Retry is what an engine in acknowledged mode does where a receiver is not ready, or nothing
// comes back.
type Retry struct {
	Wait       time.Duration // as receiver: how long the peer is told to wait
	Tries      int           // how often a message is sent again; below 0: as often as it takes
	PeerTries  uint8         // as receiver: rdmap.Reliability.Tries, which the peer is told
	Unanswered time.Duration // how long requests may be unanswered; 0: for ever
}

// rnrDefault is long for a wire and short for a program.
const rnrDefault = 640 * time.Microsecond

// SetRetry sets what applies from now on. Any goroutine, in any state.
func (q *Engine) SetRetry(r Retry) {
	r.PeerTries = min(r.PeerTries, rdmap.TriesForEver)
	q.retry.set.Store(&r)
}

func (r *retry) timer() uint8 { return rdmap.RNRCode(r.get().Wait) }

// exhausted says whether so many NotReady messages in a row are too many. told is what the last of
// them says of that.
func (r *retry) exhausted(tries int64, told uint8) bool {
	most := r.get().Tries
	switch told {
	case 0:
	case rdmap.TriesForEver:
		return false
	default:
		most = int(told) - 1
	}
	return most >= 0 && tries > int64(most)
}

// NotReadyTime is how long the peer wants to be left alone (EffectNotReady).
func (q *Engine) NotReadyTime() time.Duration { return rdmap.RNRTime(q.ack.wait) }

// Unanswered is how long requests may be unanswered; 0: for ever.
func (q *Engine) Unanswered() time.Duration { return max(0, q.retry.get().Unanswered) }

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

// Answered grows with each answer of the peer's: a message accepted, octets of a Response placed,
// NotReady.
func (q *Engine) Answered() uint64 {
	k, a := &q.ack, &q.requester
	n := k.answers + k.notReadyIn
	if a.outstanding.count > 0 { // a peer may send octets of a Response over and over
		n += min(k.responded, uint64(a.outstanding.at(0).size))
	}
	return n
}

// OldestCut says whether the oldest request of those on their way was sent to its end.
func (q *Engine) OldestCut() bool { return q.ack.cursor != q.requester.sent.head }

// OnTheirWay says whether requests were sent that have not completed.
func (q *Engine) OnTheirWay() bool { return q.ack.on && q.requester.sent.count > 0 }
