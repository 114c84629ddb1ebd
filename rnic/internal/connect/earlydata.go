package connect

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// earlyData keeps octets that came while the connection was a stream and that start-up cannot take:
// those after a gap, and those after the Request. They were acknowledged, so none may be refused
// (RFC 5044 section 7.1.5: TCP must recover even while stacks are switched). They wait in their
// Bufs until the left edge has passed them and the connection is in a phase that takes them.
//
//	Read            Edge                    [pieces]
//	 |  in order     |   gap   |  early  |   gap   |  early  |
//
// A peer that keeps to section 7.1.2 has sent no octet after its Request, so there are few Bufs.
type earlyData struct {
	from uint64 // stream offset of the first octet that was not the stream's
	// the left edge at the hand-over: octets before it are handed over and never come again
	upTo   uint64
	still  int    // Bufs beyond it that are still to be handed over
	edge   uint64 // the left edge
	pieces []piece
}

// piece is octets of a Buf. Pieces are in stream order.
type piece struct {
	off uint64
	buf mem.Buf
	pos uint32 // of the first octet in the Buf's slot
	n   uint32
}

// TakeOver implements transport.Upper: the connection was a stream until now.
func (c *Connection) TakeOver(h stream.Handover) {
	c.rxNext = h.Read
	if h.Edge > h.Read || h.Early > 0 {
		c.early = &earlyData{from: h.Read, upTo: h.Edge, still: h.Early, edge: h.Edge}
	}
	c.Established()
}

// arriveEarly takes octets that are handed over, and octets from TCP while some of those wait.
func (c *Connection) arriveEarly(off uint64, b mem.Buf, data []byte) stack.Verdict {
	h := c.early
	switch {
	case off < h.upTo:
	case h.still > 0:
		h.still--
	default:
		return c.arriveNew(off, b, data)
	}
	if v := c.arriveNew(off, b, data); v != stack.Refused {
		return v
	}
	if off < c.rxBase { // the Request's last octets
		off, data = c.rxBase, data[c.rxBase-off:]
	}
	// What may be start-up is always kept, and is little. The rest, which no peer has a right to
	// send yet, has the bounds of octets that wait for the rest of their frame.
	if off >= h.from+uint64(c.longest()) &&
		(len(h.pieces) >= c.bufsMax() || c.Pool.Available() < c.Spare) {
		c.Fail(ErrPipelined)
		return stack.Taken
	}
	pos := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(
		unsafe.Pointer(unsafe.SliceData(c.Pool.Slot(b))))
	own := c.Pool.Own(b) // an FPDU that begins here will be held, and joined
	if own == mem.NoBuf {
		c.Fail(ErrPipelined)
		return stack.Taken
	}
	h.pieces = append(h.pieces, piece{off: off, buf: own, pos: uint32(pos), n: uint32(len(data))})
	return stack.Kept
}

// giveEarly gives the octets before the left edge to start-up or to the engine, whose effects Edge
// heeds.
func (c *Connection) giveEarly(edge uint64) {
	h := c.early
	h.edge = edge
	for len(h.pieces) > 0 && h.pieces[0].off < edge {
		p := &h.pieces[0]
		data := c.Pool.Slot(p.buf)[p.pos : p.pos+p.n]
		kept := false
		switch {
		case c.phase.awaitsFrame():
			used := uint32(c.startup(data))
			p.off, p.pos, p.n = p.off+uint64(used), p.pos+used, p.n-used
			if p.n > 0 {
				continue
			}
		case c.phase == phaseDecide:
			return
		case c.phase.inService():
			if kept = c.engine.ArriveLate(p.off-c.rxBase, p.buf, data); kept {
				to := p.off - c.rxBase + uint64(len(data))
				c.keeps(to, c.engine.Passed(), c.Transport.Now())
			}
		}
		if !kept {
			c.Pool.Free(p.buf)
		}
		h.pieces = h.pieces[1:]
	}
	if len(h.pieces) == 0 && edge >= h.upTo && h.still == 0 {
		c.early = nil
	}
}

// dropEarly frees what is left when the connection is over.
func (c *Connection) dropEarly() {
	if c.early == nil {
		return
	}
	for _, p := range c.early.pieces {
		c.Pool.Free(p.buf)
	}
	c.early = nil
}
