package capture

import (
	"fmt"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Port is a captured pmd.Port.
type Port struct {
	pmd.Port
	capture *Capture
	id      int // interface in the file
}

// Queue is a captured pmd.Queue. All of its methods belong to the goroutine of the queue it wraps.
type Queue struct {
	pmd.Queue
	pool  *mem.Pool
	clock func() int64
	tap   *tap
}

var _ pmd.Port = (*Port)(nil)
var _ pmd.Timed = (*Queue)(nil)

// slot describes one captured frame. It and its octets are the Poller's until published and the
// writer's until released. start is fixed.
type slot struct {
	at                    int64 // nanoseconds since 1970
	start                 uint32
	kept, length          uint32 // octets here, and of the frame
	csumStart, csumOffset uint16
	incomplete            bool
}

// tap is one queue's ring to the writer.
type tap struct {
	id      int
	snap    int
	ring    *mem.SPSC[slot]
	data    []byte
	dropped atomic.Uint64 // Poller adds, anybody reads
	written uint64        // writer's
}

func newTap(id, slots, snap int) *tap {
	backing := make([]slot, slots)
	for i := range backing {
		backing[i].start = uint32(i * snap)
	}
	return &tap{id: id, snap: snap, ring: mem.NewSPSC(backing), data: make([]byte, slots*snap)}
}

func (t *tap) octets(s *slot) []byte { return t.data[s.start : s.start+s.kept] }

// Open opens queue i of the device and captures it from the first frame.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	q, err := p.Port.Open(i, pool)
	if err != nil {
		return nil, err
	}
	c := p.capture
	snap := p.Caps().MTU + pmd.FrameOverhead
	if c.cfg.SnapLen > 0 {
		snap = min(snap, c.cfg.SnapLen)
	}
	if uint64(c.cfg.Slots)*uint64(snap) > 1<<32-1 {
		return nil, fmt.Errorf("capture: %s: %d slots of %d octets are more than 4 GiB; use fewer slots or a snap length", p.Name(), c.cfg.Slots, snap)
	}
	t := newTap(p.id, c.cfg.Slots, snap)
	c.mu.Lock()
	c.taps = append(c.taps, t)
	c.mu.Unlock()
	return &Queue{Queue: q, pool: pool, clock: c.cfg.Clock, tap: t}, nil
}

// Rx receives, and captures what came.
func (q *Queue) Rx(bufs []mem.Buf) int {
	n := q.Queue.Rx(bufs)
	if n > 0 {
		q.keep(bufs[:n])
	}
	return n
}

// Tx sends, and captures what the device took.
func (q *Queue) Tx(bufs []mem.Buf) int {
	n := q.Queue.Tx(bufs)
	if n > 0 {
		q.keep(bufs[:n])
	}
	return n
}

// Deadline is that of the queue inside.
func (q *Queue) Deadline() int64 { return pmd.Deadline(q.Queue) }

// keep copies frames into the ring and publishes them together.
func (q *Queue) keep(bufs []mem.Buf) {
	now := q.clock()
	t := q.tap
	n := 0
	for _, b := range bufs {
		s := t.ring.Reserve(n)
		if s == nil {
			t.dropped.Add(uint64(len(bufs) - n))
			break
		}
		d := q.pool.Desc(b)
		s.at, s.length, s.kept = now, d.Len, min(d.Len, uint32(t.snap))
		s.incomplete, s.csumStart, s.csumOffset = pmd.Incomplete(d), d.CsumStart, d.CsumOffset
		copy(t.data[s.start:s.start+s.kept], q.pool.Data(b))
		n++
	}
	t.ring.Publish(n)
}
