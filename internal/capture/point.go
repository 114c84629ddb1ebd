package capture

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// AttachedMax is how many Captures a Point has at a time: each copies frames on the Poller's core.
const AttachedMax = 4

// Point is a pmd.Port that can be captured while it is in use. Capture.Attach is for any goroutine.
type Point struct {
	pmd.Port
	mu       sync.Mutex
	queues   []*Queue
	attached []attached
}

// attached is a Capture of a Point.
type attached struct {
	capture *Capture
	id      int // interface in the file
}

// Queue is a pmd.Queue of a Point. All of its methods belong to the goroutine of the queue it
// wraps.
type Queue struct {
	pmd.Queue
	pool *mem.Pool
	taps atomic.Pointer[[]*tap] // nil: none. What it points to does not change
}

var _ pmd.Port = (*Point)(nil)
var _ pmd.Timed = (*Queue)(nil)
var _ pmd.Interrupter = (*Queue)(nil)

// NewPoint puts a Point around p.
func NewPoint(p pmd.Port) *Point { return &Point{Port: p} }

// Open opens queue i of the device. Captures that are attached have it from the first frame.
func (p *Point) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	q, err := p.Port.Open(i, pool)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := &Queue{Queue: q, pool: pool}
	for _, a := range p.attached {
		// Where Close has begun, this one goes the way of the others.
		t, err := a.capture.newTap(p, a.id)
		if err != nil {
			return nil, err
		}
		a.capture.add(t)
		queue.add(t)
	}
	p.queues = append(p.queues, queue)
	return queue, nil
}

// attach is Capture.Attach, whose mutex is held.
func (p *Point) attach(c *Capture, id int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.attached) == AttachedMax {
		return fmt.Errorf("capture: %s: %d captures are running, and no more at a time", p.Name(),
			AttachedMax)
	}
	if slices.ContainsFunc(p.attached, func(a attached) bool { return a.capture == c }) {
		return fmt.Errorf("capture: %s: it is captured into this file already", p.Name())
	}
	taps := make([]*tap, len(p.queues))
	for i := range taps {
		var err error
		if taps[i], err = c.newTap(p, id); err != nil {
			return err
		}
	}
	c.add(taps...)
	for i, q := range p.queues {
		q.add(taps[i])
	}
	p.attached = append(p.attached, attached{c, id})
	return nil
}

// detach ends what attach began. A burst that is being copied goes into rings that are still there.
func (p *Point) detach(c *Capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached = slices.DeleteFunc(p.attached, func(a attached) bool { return a.capture == c })
	for _, q := range p.queues {
		q.remove(c)
	}
}

func (q *Queue) add(t *tap) {
	taps := []*tap{t}
	if old := q.taps.Load(); old != nil {
		taps = append(slices.Clone(*old), t)
	}
	q.taps.Store(&taps)
}

func (q *Queue) remove(c *Capture) {
	old := q.taps.Load()
	if old == nil {
		return
	}
	taps := slices.DeleteFunc(slices.Clone(*old), func(t *tap) bool { return t.capture == c })
	if len(taps) == 0 {
		q.taps.Store(nil)
		return
	}
	q.taps.Store(&taps)
}

// Rx receives, and captures what came.
func (q *Queue) Rx(bufs []mem.Buf) int {
	n := q.Queue.Rx(bufs)
	if n > 0 {
		if taps := q.taps.Load(); taps != nil {
			q.keep(*taps, bufs[:n], true)
		}
	}
	return n
}

// Tx sends, and captures what the device took.
func (q *Queue) Tx(bufs []mem.Buf) int {
	n := q.Queue.Tx(bufs)
	if n > 0 {
		if taps := q.taps.Load(); taps != nil {
			q.keep(*taps, bufs[:n], false)
		}
	}
	return n
}

func (q *Queue) keep(taps []*tap, bufs []mem.Buf, received bool) {
	for _, t := range taps {
		t.keep(q.pool, bufs, received)
		if t.capture.cfg.Direct {
			_ = t.capture.Flush() // Err tells of it
		}
	}
}

// Deadline is that of the queue inside.
func (q *Queue) Deadline() int64 { return pmd.Deadline(q.Queue) }

// Interrupt is that of the queue inside, if it has one.
func (q *Queue) Interrupt() (fd int, ok bool) {
	if in, can := q.Queue.(pmd.Interrupter); can {
		return in.Interrupt()
	}
	return 0, false
}

// Arm is for a queue that has an Interrupt.
func (q *Queue) Arm(on bool) {
	if in, can := q.Queue.(pmd.Interrupter); can {
		in.Arm(on)
	}
}
