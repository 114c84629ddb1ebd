package capture

import (
	"fmt"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/capture/filter"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// slot describes one captured frame. It and its octets are the Poller's until published and the
// writer's until released. start is fixed.
type slot struct {
	at                    int64 // nanoseconds since 1970
	start                 uint32
	kept, length          uint32 // octets here, and of the frame
	missed                uint32 // frames before it that found no room
	csumStart, csumOffset uint16
	incomplete, received  bool
}

// tap is one queue's ring to the writer of a Capture.
type tap struct {
	capture *Capture
	id      int
	snap    int
	filter  *filter.Program
	clock   func() int64
	ring    *mem.SPSC[slot]
	data    []byte
	missed  uint32        // since the last frame that was kept; Poller's
	dropped atomic.Uint64 // Poller adds, anybody reads
	written uint64        // writer's
}

// octetsMax is what a ring may hold: positions in it have 32 bits.
const octetsMax = 1<<32 - 1

func (c *Capture) newTap(p *Point, id int) (*tap, error) {
	snap := p.Caps().MTU + pmd.FrameOverhead
	if c.cfg.SnapLen > 0 {
		snap = min(snap, c.cfg.SnapLen)
	}
	if uint64(c.cfg.Slots)*uint64(snap) > octetsMax {
		return nil, fmt.Errorf("capture: %s: %d slots of %d octets are more than 4 GiB; use fewer "+
			"slots or a snap length", p.Name(), c.cfg.Slots, snap)
	}
	backing := make([]slot, c.cfg.Slots)
	for i := range backing {
		backing[i].start = uint32(i * snap)
	}
	data := make([]byte, c.cfg.Slots*snap)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 0 // page faults are not for the Poller
	}
	return &tap{capture: c, id: id, snap: snap, filter: c.cfg.Filter, clock: c.cfg.Clock,
		ring: mem.NewSPSC(backing), data: data}, nil
}

// add has the writer look at rings.
func (c *Capture) add(taps ...*tap) {
	c.tapsMu.Lock()
	defer c.tapsMu.Unlock()
	c.taps = append(c.taps, taps...)
}

// all are the rings that there are: those before the present end of the slice do not change.
func (c *Capture) all() []*tap {
	c.tapsMu.Lock()
	defer c.tapsMu.Unlock()
	return c.taps
}

func (t *tap) octets(s *slot) []byte { return t.data[s.start : s.start+s.kept] }

// keep copies the frames that the filter wants into the ring and publishes them together.
func (t *tap) keep(pool *mem.Pool, bufs []mem.Buf, received bool) {
	now := t.clock()
	n, lost := 0, 0
	for _, b := range bufs {
		frame := pool.Data(b)
		if t.filter != nil && !t.filter.Match(frame, received) {
			continue
		}
		s := t.ring.Reserve(n)
		if s == nil {
			lost++
			t.missed++
			continue
		}
		d := pool.Desc(b)
		s.at, s.length, s.kept = now, d.Len, min(d.Len, uint32(t.snap))
		s.incomplete, s.csumStart, s.csumOffset = pmd.Incomplete(d), d.CsumStart, d.CsumOffset
		s.received, s.missed = received, t.missed
		t.missed = 0
		copy(t.data[s.start:s.start+s.kept], frame)
		n++
	}
	t.ring.Publish(n)
	if lost > 0 {
		t.dropped.Add(uint64(lost))
	}
}
