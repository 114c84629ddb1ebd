package vswitch

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Core is one of the goroutines that switch. Turn is for that goroutine alone.
type Core struct {
	id    int
	pool  *mem.Pool
	kept  int // of its Bufs: what devices receive into
	plan  *plan
	ports []*port   // programs and uplinks that are polled here
	wires []*port   // to the other cores, at their numbers; nil at ours
	dirty []*port   // have something to send in this turn
	next  []mem.Buf // of each Buf that waits: the one after it, of the same source

	now       int64
	fragments fragments
	stats     CoreStats

	bufs    [burst]mem.Buf
	headers headers
	run     run

	command atomic.Pointer[command] // to be done between two turns
}

// command is for a Core to do. There is one at a time.
type command struct {
	do   func(*Core)
	done chan struct{}
}

// wireHeader goes in front of a frame on its way to another core: the slots of the port that it
// is for and of its source, and the former's serial number.
const (
	wireHeader  = 8
	wireBuffers = 512
)

// Turn moves up to a burst from each port, and returns the number of frames. now is in
// nanoseconds of any monotonic clock.
func (c *Core) Turn(now int64) (n int) {
	c.now = now
	if c.command.Load() != nil {
		c.runCommand()
	}
	for _, m := range c.ports {
		n += c.poll(m)
	}
	for _, w := range c.wires {
		if w != nil {
			n += c.unwire(w)
		}
	}
	c.flush()
	c.stats.Turns++
	if n > 0 {
		c.stats.Busy++
	}
	return n
}

// runCommand takes the command before it does it: a caller whose time is over either takes it back,
// and it is not done, or waits until it is.
func (c *Core) runCommand() {
	if cmd := c.command.Swap(nil); cmd != nil {
		cmd.do(c)
		close(cmd.done)
	}
}

// flush sends what this turn has brought, and what waits from turns before.
func (c *Core) flush() {
	kept := c.dirty[:0]
	for _, m := range c.dirty {
		m.flush(c)
		if m.dirty = m.waiting > 0; m.dirty {
			kept = append(kept, m)
		}
	}
	c.dirty = kept
}

// poll takes a burst from each queue of a port, beginning with another one each time. A program
// that has sent all that its rate allows waits, with its frames in its own rings, as does one that
// would lose frames at its uplink.
func (c *Core) poll(m *port) (work int) {
	if m.kind == kindProgram && c.fills(m) {
		m.stats.Throttled++
		return 0
	}
	if m.first++; m.first >= len(m.queues) {
		m.first = 0
	}
	for i := range m.queues {
		at := m.first + i
		if at >= len(m.queues) {
			at -= len(m.queues)
		}
		q := m.queues[at]
		most := burst
		if m.send[octets].rate|m.send[frames].rate != 0 {
			if most = m.allowance(c.now); most == 0 {
				m.stats.Throttled++
				break
			}
		}
		n := q.Rx(c.bufs[:most])
		if n == 0 {
			continue
		}
		work += n
		c.run.valid = false
		before := m.stats.ReceivedOctets
		m.stats.Received += uint64(n)
		for _, b := range c.bufs[:n] {
			c.input(m, b)
		}
		m.send[octets].take(int64(m.stats.ReceivedOctets - before))
		m.send[frames].take(int64(n))
	}
	c.stats.Frames += uint64(work)
	return work
}

// fills says whether a burst more of a program's would be too many at its uplink, whose device
// goes on: the uplink is full, and the program has its share of what waits there, or more. To the
// program the uplink is a device at line rate then, and its connections have turns by octets;
// they would have them by losses.
func (c *Core) fills(m *port) bool {
	up := c.plan.uplink(m.program.Uplink, c.id)
	if up == nil || up.core != c.id || up.waiting+burst <= up.buffers || c.now-up.movedAt > stillNs {
		return false
	}
	o := &up.out[0]
	return int(m.slot) < len(o.flows) && int(o.flows[m.slot].frames)*o.active >= up.waiting-
		len(o.stage)
}

// allowance is how many frames a program may send now.
func (m *port) allowance(now int64) int {
	m.send[octets].fill(now)
	m.send[frames].fill(now)
	switch {
	case m.send[octets].empty() || m.send[frames].empty():
		return 0
	case m.send[frames].rate != 0:
		return int(min(m.send[frames].level, burst))
	}
	return burst
}

// input finds the way of one frame, which is the switch's own from here on.
func (c *Core) input(in *port, b mem.Buf) {
	d := c.pool.Desc(b)
	frame := c.pool.Data(b)
	in.stats.ReceivedOctets += uint64(d.Len)
	if d.Flags != 0 {
		if pmd.Incomplete(d) && !pmd.CompleteChecksum(frame, d.CsumStart, d.CsumOffset) {
			c.drop(in, b, Malformed)
			return
		}
		d.Flags = 0
	}
	if p := c.run.of(frame); p != nil {
		c.send(in, p, b)
		return
	}
	c.stats.Lookups++
	h := &c.headers
	reason := h.parse(frame)
	if reason == Passed && !in.isUplink() {
		reason = in.source(h)
	}
	if reason != Passed {
		c.drop(in, b, reason)
		if (reason == SpoofedMAC || reason == SpoofedAddr) && h.probe() {
			c.refuse(in, h)
		}
		return
	}
	v := c.steer(in, h, c.now)
	switch {
	case v.reason != Passed:
		c.drop(in, b, v.reason)
	case v.to != nil:
		c.run.begin(frame, v.to)
		c.send(in, v.to, b)
	case v.answer != nil:
		c.pool.Free(b)
		c.answer(in, h, v.answer)
	case v.group != nil:
		if c.mayCopy(in, toStation) {
			c.copyToAll(in, v.group.members, toStation, b)
		}
		c.pool.Free(b)
	case v.flood:
		c.flood(in, h.vid, b)
	}
}

func (c *Core) drop(in *port, b mem.Buf, r Reason) {
	in.stats.Drops[r]++
	c.pool.Free(b)
}

// send gives a frame of a source to a port of any core.
func (c *Core) send(in, m *port, b mem.Buf) {
	if m.core == c.id {
		m.accept(c, slot(in.slot), b)
		return
	}
	d := c.pool.Desc(b)
	d.Off -= wireHeader
	d.Len += wireHeader
	head := c.pool.Data(b)
	binary.LittleEndian.PutUint32(head, uint32(in.slot)<<16|uint32(m.slot))
	binary.LittleEndian.PutUint32(head[4:], m.serial)
	c.wires[m.core].accept(c, slot(in.slot), b)
}

// unwire takes what another core has sent, as much as it may have on the way.
func (c *Core) unwire(w *port) (work int) {
	for range wireBuffers / burst {
		n := c.unwireBurst(w)
		if work += n; n < burst {
			break
		}
	}
	return work
}

// unwireBurst takes a burst. The other core has found the ports that they are for.
func (c *Core) unwireBurst(w *port) int {
	n := w.queues[0].Rx(c.bufs[:])
	for _, b := range c.bufs[:n] {
		d := c.pool.Desc(b)
		head := c.pool.Data(b)
		slots, serial := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
		d.Off += wireHeader
		d.Len -= wireHeader
		if m := c.port(uint16(slots), serial); m != nil && m.core == c.id {
			m.accept(c, slot(slots>>16), b)
			continue
		}
		c.stats.Drops[Gone]++
		c.pool.Free(b)
	}
	return n
}

// port is the one with a serial number, or nil.
func (c *Core) port(slot uint16, serial uint32) *port {
	if int(slot) >= len(c.plan.ports) {
		return nil
	}
	if m := c.plan.ports[slot]; m != nil && m.serial == serial {
		return m
	}
	return nil
}

// flood copies a frame to all programs of its link except those of the station that it comes
// from, and to the uplink unless it comes from there.
func (c *Core) flood(in *port, vid uint16, b mem.Buf) {
	if c.mayCopy(in, toLink) {
		for _, s := range c.plan.links[linkOf(in.segment(), vid)] {
			if s != in.station {
				c.copyToAll(in, s.members, toLink, b)
			}
		}
	}
	if !in.isUplink() {
		if up := c.plan.uplink(in.program.Uplink, c.id); up != nil {
			c.send(in, up, b)
			return
		}
	}
	c.pool.Free(b)
}

// mayCopy says whether one more frame of a source is copied: then to all that it is for, so that
// none is always among the last, for whom nothing is left. The source owes what that is too many.
func (c *Core) mayCopy(in *port, to int) bool {
	in.copies[to].fill(c.now)
	if in.copies[to].empty() {
		in.stats.Drops[MulticastRate]++
		return false
	}
	return true
}

// copyToAll sends a copy to each that is attached.
func (c *Core) copyToAll(in *port, members []*port, to int, b mem.Buf) {
	for _, m := range members {
		if !m.attached() {
			continue
		}
		x := c.pool.Alloc()
		if x == mem.NoBuf {
			in.stats.Drops[NoBuffer]++
			return
		}
		in.copies[to].take(1)
		c.stats.Copies++
		d := c.pool.Desc(x)
		d.Len = c.pool.Desc(b).Len
		copy(c.pool.Data(x), c.pool.Data(b))
		c.send(in, m, x)
	}
}
