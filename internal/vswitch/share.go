package vswitch

import (
	"math/bits"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// outgoing are frames that wait for a queue. Their sources share it: by octets, in rounds (deficit
// round robin: M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round robin",
// 1995), which go on from turn to turn; and the buffers by number: where there is no room, a source
// with the most frames, up to a factor of 2, loses its oldest one. So a source that sends less than
// its share loses nothing, whatever others send and in which order.
type outgoing struct {
	flows   []flow // by slot of the source
	head    slot   // the round goes on here; noSlot: nothing waits
	active  int    // flows in the round
	classes [classes]slot
	filled  uint32    // bits of classes
	stage   []mem.Buf // what goes next: the queue may have refused it
	batch   int       // so many are chosen at a time: few, while the queue refuses some
}

// slot is that of a port in plan.ports.
type slot int32

const (
	noSlot  = slot(-1)
	classes = 18 // by bits of the number of frames, BuffersMax at most
)

// flow is what waits of one source: a list of Bufs, linked by Core.next.
type flow struct {
	first, last        mem.Buf
	frames             int32
	credit             int32 // octets that it may send before the next flow's turn
	after, before      slot  // in the round
	likeNext, likePrev slot  // in its class
}

func newOutgoing() outgoing {
	o := outgoing{head: noSlot, stage: make([]mem.Buf, 0, burst), batch: burst}
	for i := range o.classes {
		o.classes[i] = noSlot
	}
	return o
}

// sources makes room for the flows of so many slots.
func (o *outgoing) sources(n int) {
	if n > len(o.flows) {
		o.flows = append(make([]flow, 0, n), o.flows...)[:n]
	}
}

func class(frames int32) int { return bits.Len32(uint32(frames)) }

// longest is the class of the flows with the most frames.
func (o *outgoing) longest() int { return bits.Len32(o.filled) - 1 }

// enter and leave are for a flow and its class.
func (o *outgoing) enter(s slot, k int) {
	f := &o.flows[s]
	f.likePrev, f.likeNext = noSlot, o.classes[k]
	if f.likeNext != noSlot {
		o.flows[f.likeNext].likePrev = s
	}
	o.classes[k] = s
	o.filled |= 1 << k
}

func (o *outgoing) leave(s slot, k int) {
	f := &o.flows[s]
	if f.likeNext != noSlot {
		o.flows[f.likeNext].likePrev = f.likePrev
	}
	if f.likePrev != noSlot {
		o.flows[f.likePrev].likeNext = f.likeNext
	} else if o.classes[k] = f.likeNext; f.likeNext == noSlot {
		o.filled &^= 1 << k
	}
}

// put adds a frame of a source.
func (o *outgoing) put(c *Core, from slot, b mem.Buf, quantum int32) {
	f := &o.flows[from]
	was := class(f.frames)
	f.frames++
	if was == 0 {
		f.first, f.last, f.credit = b, b, quantum
		o.enter(from, 1)
		o.join(from)
		return
	}
	c.next[f.last], f.last = b, b
	if k := class(f.frames); k != was {
		o.leave(from, was)
		o.enter(from, k)
	}
}

// join puts a flow at the end of the round, part takes it out.
func (o *outgoing) join(s slot) {
	f := &o.flows[s]
	o.active++
	if o.head == noSlot {
		o.head, f.after, f.before = s, s, s
		return
	}
	head := &o.flows[o.head]
	f.after, f.before = o.head, head.before
	o.flows[f.before].after, head.before = s, s
}

func (o *outgoing) part(s slot) {
	f := &o.flows[s]
	o.active--
	if f.after == s {
		o.head = noSlot
		return
	}
	o.flows[f.before].after, o.flows[f.after].before = f.after, f.before
	if o.head == s {
		o.head = f.after
	}
}

// take takes the oldest frame of a flow.
func (o *outgoing) take(c *Core, s slot) mem.Buf {
	f := &o.flows[s]
	b, was := f.first, class(f.frames)
	f.first = c.next[b]
	f.frames--
	if k := class(f.frames); k != was {
		o.leave(s, was)
		if k == 0 {
			o.part(s)
		} else {
			o.enter(s, k)
		}
	}
	return b
}

// choose takes the frame that goes next, if there is one.
func (o *outgoing) choose(c *Core, quantum int32) (mem.Buf, bool) {
	for o.head != noSlot {
		f := &o.flows[o.head]
		n := int32(c.pool.Desc(f.first).Len)
		if f.credit >= n {
			f.credit -= n
			return o.take(c, o.head), true
		}
		f.credit += quantum
		o.head = f.after
	}
	return mem.NoBuf, false
}

// evict takes the oldest frame of one of the longest flows.
func (o *outgoing) evict(c *Core) mem.Buf { return o.take(c, o.classes[o.longest()]) }

// quantum is what a source may send before it is the next one's turn: a frame of any length.
func (m *port) quantum() int32 { return int32(m.mtu + pmd.FrameOverhead) }
