package engine

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// cq is a ring of completions that the program empties.
//
//	rnic, any goroutine --add: take a position, fill the entry, write its seq--> program
//
// It holds as many completions as it has entries, as ibv_create_cq(3) has it: what does not fit is
// lost, and IBV_EVENT_CQ_ERR told.
//
// Entries may move to a larger ring (cqresize.go). The word that gives out positions says which
// ring they are in.
type cq struct {
	*mapping
	subject
	head   *ring.CQ
	tail   atomic.Uint64 // which ring << 32 | positions taken
	rings  [cqRings]atomic.Pointer[cqRing]
	resize sync.Mutex
	notify atomic.Pointer[channel]
	waits  *ring.Waits // of the channel; nil: there is none
	ctx    *opened
	lost   atomic.Bool
	timed  bool // completions say when they were published
}

// cqRing is the entries of a time.
type cqRing struct {
	entries []wq.CQE
	first   uint32        // position
	written atomic.Uint32 // entries that are there, or were
}

func (e *Engine) createCQ(c *call) (err error) {
	depth := c.arg[0]
	ctx, err := find[*opened](&e.objects, c.arg[3])
	if err != nil {
		return err
	}
	if depth < 1 || depth > ring.CQEMax {
		return syscall.EINVAL
	}
	if err = e.limits.cqs.take(); err != nil {
		return err
	}
	defer e.limits.cqs.giveIf(&err)
	q := &cq{subject: subject{cookie: c.arg[2]}, ctx: ctx, timed: c.arg[5] != 0}
	var entries []wq.CQE
	if q.mapping, q.head, entries, err = ringOf[ring.CQ, wq.CQE](ringSize(int(depth))); err != nil {
		return err
	}
	q.rings[0].Store(&cqRing{entries: entries})
	if fd := int(int64(c.arg[1])); fd >= 0 {
		q.notify.Store(e.channels.open(fd))
		if c.arg[4] != 0 {
			q.waits = (*ring.Waits)(pointer(c.arg[4]))
		}
	}
	c.out[0], c.out[1], c.out[2] = e.objects.add(q), q.addr(), uint64(len(entries))
	return nil
}

func (e *Engine) destroyCQ(c *call) error {
	q, err := take[*cq](&e.objects, c.arg[0])
	if err == nil {
		e.limits.cqs.give()
		q.leave(q.notify.Load(), q.ctx.events.Load())
		q.release()
	}
	return err
}

// add adds a completion, and says whether there was room. What the program has done to the entries,
// and to head, matters to itself alone. Several goroutines call it at once.
func (q *cq) add(c *rnic.Completion) bool {
	var r *cqRing
	var at uint32
	for {
		tail := q.tail.Load()
		r, at = q.rings[tail>>32].Load(), uint32(tail)
		if at-atomic.LoadUint32(&q.head.Head) >= uint32(len(r.entries)) {
			if q.tail.Load() != tail {
				continue // head may be of a later time, and ahead of at
			}
			if !q.lost.Swap(true) {
				q.ctx.tell(eventCQError, &q.subject)
			}
			return false
		}
		if q.tail.CompareAndSwap(tail, tail&^math.MaxUint32|uint64(at+1)) {
			break
		}
	}
	if c.WithImmediate && !c.BesideSend { // the peer's word, and how far it can be true
		c.Len = min(binary.BigEndian.Uint32(c.Immediate[4:]), c.Written)
	}
	if q.timed {
		wq.Stamp(c, monotonic())
	}
	// and then armed is read; the program arms and then polls
	wq.Publish(&r.entries[at&uint32(len(r.entries)-1)], c, at)
	r.written.Add(1)
	q.wake(c.Solicited || c.Status != rnic.Success)
	return true
}

// written tells a thread that waits on the channel, if the program has asked for any completion,
// that a peer has written to memory. One that begins to wait looks at what is kept here first.
func (q *cq) written() {
	if q.waits == nil || atomic.LoadUint32(&q.head.Armed) != ring.ArmedAny {
		return
	}
	atomic.StoreUint32(&q.head.Written, 1)
	atomic.StoreUint32(&q.waits.Written, 1)
	if atomic.LoadUint32(&q.waits.Waiting) != 0 {
		q.wake(false)
	}
}

// wake tells the program's channel once for each time that it has armed. The program may ask for
// more meanwhile, any completion instead of a solicited one.
func (q *cq) wake(urgent bool) {
	for {
		armed := atomic.LoadUint32(&q.head.Armed)
		if armed == ring.Disarmed || armed == ring.ArmedSolicited && !urgent {
			return
		}
		if atomic.CompareAndSwapUint32(&q.head.Armed, armed, ring.Disarmed) {
			break
		}
	}
	q.tell(q.notify.Load(), octets(&q.cookie))
}
