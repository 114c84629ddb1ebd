package fault

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

const burstMax = 64

// Queue is a pmd.Queue with faults in both directions. All of its methods belong to the goroutine
// of the queue it wraps.
type Queue struct {
	inner pmd.Queue
	pool  *mem.Pool
	clock func() int64
	rx    *direction
	tx    *direction

	rxSink collector
	txSink sender
	burst  [burstMax]mem.Buf
	// passNext: the first frame of the next Tx was rolled to pass in the last one, but the device
	// was full. It is not rolled again, or waiting for the device would look like loss.
	passNext bool
}

var _ pmd.Timed = (*Queue)(nil)

// collector gathers received frames in the caller's slice.
type collector struct {
	out []mem.Buf
	n   int
}

func (c *collector) send(b mem.Buf) bool {
	if c.n == len(c.out) {
		return false
	}
	c.out[c.n] = b
	c.n++
	return true
}

// sender hands frames that the direction owns to the device.
type sender struct {
	inner pmd.Queue
	pool  *mem.Pool
	one   [1]mem.Buf
}

func (s *sender) send(b mem.Buf) bool {
	s.one[0] = b
	if s.inner.Tx(s.one[:]) == 0 {
		return false
	}
	s.pool.Free(b)
	return true
}

// Wrap puts faults around q. pool is the one q was opened with: copies of frames to be sent and
// everything held come from it, up to four times Spec.HeldMax Bufs at worst. clock is nanoseconds,
// never backwards; it is read once per call. Error: a Spec out of its bounds.
func Wrap(q pmd.Queue, pool *mem.Pool, spec Spec, clock func() int64) (*Queue, error) {
	return wrap(q, pool, spec, clock, 0)
}

// wrap: every queue and direction draws from a stream of its own, so that none disturbs another.
func wrap(q pmd.Queue, pool *mem.Pool, spec Spec, clock func() int64, index int) (*Queue, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if spec.HeldMax == 0 {
		spec.HeldMax = HeldMaxDefault
	}
	w := &Queue{
		inner:  q,
		pool:   pool,
		clock:  clock,
		rx:     newDirection(spec.Rx, spec.HeldMax, pool, spec.Seed, 2*uint64(index)),
		tx:     newDirection(spec.Tx, spec.HeldMax, pool, spec.Seed, 2*uint64(index)+1),
		txSink: sender{inner: q, pool: pool},
	}
	return w, nil
}

// Set changes the faults from the next frame on: a partition that heals. Seed and HeldMax stay as
// they are; what is held goes when it was to go.
func (q *Queue) Set(rx, tx Faults) error {
	if err := (Spec{Rx: rx, Tx: tx}).check(); err != nil {
		return err
	}
	q.rx.faults, q.tx.faults = rx.filled(), tx.filled()
	return nil
}

// Watch has fn see every frame that is received and not dropped, before bits of it are flipped or
// its end is cut off. swapped is where in it two words have changed places; two zeros: none have.
// It is called on the queue's goroutine; the frame is lent for the call.
func (q *Queue) Watch(fn func(frame []byte, swapped [2]int)) { q.rx.watch = fn }

// Rx receives through the faults; it also lets go what Tx holds and is due, so that a Poller which
// only receives still sends. Flags of a frame say nothing any more: its checksums are complete and
// to be verified.
func (q *Queue) Rx(bufs []mem.Buf) int {
	now := q.clock()
	q.tx.release(now, &q.txSink)
	q.rxSink = collector{out: bufs}
	if q.rx.release(now, &q.rxSink) {
		room := q.rxRoom(now, min(len(bufs)-q.rxSink.n, len(q.burst)))
		n := q.inner.Rx(q.burst[:room])
		for _, b := range q.burst[:n] {
			q.receive(b, now)
		}
	}
	n := q.rxSink.n
	q.rxSink = collector{}
	return n
}

func (q *Queue) receive(b mem.Buf, now int64) {
	q.rx.counters.Frames++
	q.rx.slow.passed(&q.rx.faults, now, int(q.pool.Desc(b).Len))
	f := q.rx.roll()
	if f == effectDrop {
		q.rx.counters.Dropped++
		q.pool.Free(b)
		return
	}
	d := q.pool.Desc(b)
	if f&(effectSwap|effectCorrupt) != 0 || pmd.Incomplete(d) {
		if b = own(q.pool, b); b == mem.NoBuf {
			q.rx.counters.NoBuf++
			return
		}
		d = q.pool.Desc(b)
	}
	if pmd.Incomplete(d) {
		pmd.CompleteChecksum(q.pool.Data(b), d.CsumStart, d.CsumOffset)
	}
	d.Flags, d.CsumStart, d.CsumOffset = 0, 0, 0
	q.rx.admit(b, f, now, &q.rxSink)
}

// own is b, or a copy of it where its sender shares its memory: a fault damages one frame on its
// way, not what is sent next time. NoBuf: b is lost for want of one.
func own(pool *mem.Pool, b mem.Buf) mem.Buf {
	c := pool.Own(b)
	if c == mem.NoBuf {
		pool.Free(b)
	}
	return c
}

// Tx sends through the faults, what the device is not too slow for.
func (q *Queue) Tx(bufs []mem.Buf) int {
	now := q.clock()
	q.tx.release(now, &q.txSink)
	n := q.send(now, bufs[:q.txRoom(now, bufs)])
	for _, b := range bufs[:n] {
		q.tx.slow.passed(&q.tx.faults, now, int(q.pool.Desc(b).Len))
	}
	return n
}

// send lets the faults happen to frames. Those without effects go to the device as they are, in
// runs; every other one is taken as a copy, for the caller may send its Buf again.
func (q *Queue) send(now int64, bufs []mem.Buf) int {
	run := 0 // bufs[run:i] pass and are not handed over yet
	for i, b := range bufs {
		if q.pool.Desc(b).Flags&(mem.TxChecksum|mem.TxSegment) != 0 {
			panic("fault: frame asks for an offload that the port's Caps do not claim")
		}
		f := effects(0)
		if !q.passNext {
			f = q.tx.roll()
		}
		q.passNext = false
		if f == 0 && uint64(i+1-run) < q.tx.untilOvertaken() {
			continue
		}
		end := i
		if f == 0 {
			end = i + 1
		}
		if n := q.pass(bufs[run:end]); n < end-run {
			return q.full(run + n)
		}
		run = i + 1
		if f != 0 {
			q.transmit(b, f, now)
		} else {
			q.tx.releaseOvertaken(now, &q.txSink)
		}
	}
	if n := q.pass(bufs[run:]); n < len(bufs)-run {
		return q.full(run + n)
	}
	return len(bufs)
}

// full remembers that the frame at n was to pass.
func (q *Queue) full(n int) int {
	q.passNext = true
	return n
}

// pass hands over a run that no fault touches.
func (q *Queue) pass(run []mem.Buf) int {
	if len(run) == 0 {
		return 0
	}
	n := q.inner.Tx(run)
	q.tx.passed += uint64(n)
	q.tx.counters.Frames += uint64(n)
	return n
}

func (q *Queue) transmit(b mem.Buf, f effects, now int64) {
	q.tx.counters.Frames++
	if f == effectDrop {
		q.tx.counters.Dropped++
		return
	}
	if c := q.tx.clone(b); c != mem.NoBuf {
		q.tx.admit(c, f, now, &q.txSink)
	}
}

// Counters are the device's: frames that faults took on receive are in it, those they took on
// transmit are not.
func (q *Queue) Counters() pmd.Counters { return q.inner.Counters() }

// Faults tells what was done to frames of either direction.
func (q *Queue) Faults() (rx, tx Counters) { return q.rx.counters, q.tx.counters }

// Deadline is when a held frame, here or in the device, is next due, in the clock's nanoseconds:
// call Rx then. math.MaxInt64: none is held. A time that is past means that the device, or the
// slice given to Rx, was full.
func (q *Queue) Deadline() int64 {
	inner := pmd.Deadline(q.inner)
	if at := q.rx.slow.refused; at != 0 { // what the device has is not given before
		inner = at
	}
	return min(q.rx.deadline(), q.tx.deadline(), inner, q.tx.slow.deadline())
}

// Held is how many Bufs wait in the faults now.
func (q *Queue) Held() int {
	return q.rx.delayed.n + q.rx.overtaken.n + q.tx.delayed.n + q.tx.overtaken.n
}

// Drop frees every held frame, as when the cable is pulled, and returns how many there were.
func (q *Queue) Drop() int { return q.rx.drop() + q.tx.drop() }
