package memif

import "github.com/rnicd/rnicd/mem"

// copyOut sends by copying each frame from its Buf into shared memory.
//
//	server: into buffers that the client has posted up to head; tail says how far they are filled
//	client: into its own; the server has read those up to tail; head says how far they are filled
type copyOut struct {
	ring ring
	next uint16     // to be filled
	own  *ownMemory // client
}

func newCopyOut(q *Queue, r ring) *copyOut { return &copyOut{ring: r, own: q.session.own} }

// free is how many descriptors may be filled; more than the ring has: the other end's index
// cannot be.
func (c *copyOut) free() uint16 {
	if c.own == nil {
		return c.ring.head() - c.next
	}
	if full := c.next - c.ring.tail(); full <= c.ring.size() {
		return c.ring.size() - full
	}
	return c.ring.size() + 1
}

func (c *copyOut) send(q *Queue, bufs []mem.Buf) int {
	free := c.free()
	if free > c.ring.size() {
		return q.violated()
	}
	n, sent, octets, used := 0, 0, 0, uint16(0)
	for n < len(bufs) {
		frame := q.frame(bufs[n])
		if frame == nil {
			n++
			continue
		}
		pieces, ok := c.put(q, frame, c.next+used, free-used)
		used += pieces
		if pieces == 0 {
			break
		}
		n++
		if ok {
			sent++
			octets += len(frame)
		}
	}
	if used == 0 {
		return n
	}
	c.next += used
	if c.own != nil {
		c.ring.advance(used)
	} else {
		c.ring.setTail(c.next)
	}
	q.published(sent, octets)
	return n
}

// put copies a frame into descriptors, so many from one on, and returns how many it took: 0 is no
// room. If it was dropped for what stood in them (ok is false), they are given back empty.
//
// What they say is looked at before any of them is written, for one that is shortened cannot be
// used for a longer frame.
func (c *copyOut) put(q *Queue, frame []byte, at, free uint16) (pieces uint16, ok bool) {
	for room := 0; room < len(frame); pieces++ {
		if pieces == free {
			return 0, false
		}
		if pieces == piecesMax {
			return c.refuse(q, at, pieces), false
		}
		d := c.room(q, at+pieces)
		q.pieces[pieces] = d
		octets := q.session.at(d)
		if octets == nil {
			return c.refuse(q, at, pieces+1), false
		}
		room += len(octets)
	}
	for i := range pieces {
		d := q.pieces[i]
		n := copy(q.session.at(d), frame)
		frame = frame[n:]
		flags := uint16(0)
		if len(frame) > 0 {
			flags = descNext
		}
		c.ring.store(at+i, newDesc(flags, d.region(), uint32(n), d.offset()))
	}
	return pieces, true
}

// room is the descriptor of a buffer to be filled.
func (c *copyOut) room(q *Queue, at uint16) desc {
	if c.own == nil {
		return c.ring.load(at)
	}
	off := c.own.bufferAt(q.index, false, at&c.ring.mask, int(c.ring.size()))
	return newDesc(0, 0, uint32(c.own.bufBytes), uint32(off))
}

// refuse gives n descriptors back empty and counts the frame.
func (c *copyOut) refuse(q *Queue, at, n uint16) uint16 {
	for i := range n {
		d := q.pieces[i]
		c.ring.store(at+i, newDesc(0, d.region(), 0, d.offset()))
	}
	q.drops.Descriptor++
	q.counters.TxErrors++
	return n
}

func (c *copyOut) reclaim(*Queue)  {}
func (c *copyOut) giveBack(*Queue) {}
